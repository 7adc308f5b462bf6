import { Kbd, Modal } from "@mantine/core";

const KEYS: [string, string][] = [
  ["Ctrl K", "Go to a page, topic, group or broker, or run an action"],
  ["/", "Search on this page"],
  ["?", "This list"],
  ["Esc", "Close what is open"],
  ["Tab", "To the next control"],
];

export default function KeyHelp({ onClose }: { onClose: () => void }) {
  return (
    <Modal opened onClose={onClose} title="Keys" centered closeButtonProps={{ "aria-label": "Close" }}>
      <table className="table">
        <tbody>
          {KEYS.map(([key, text]) => (
            <tr key={key}>
              <th scope="row">
                <Kbd>{key}</Kbd>
              </th>
              <td>{text}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </Modal>
  );
}

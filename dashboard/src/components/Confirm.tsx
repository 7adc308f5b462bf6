import { Button, Modal, TextInput } from "@mantine/core";
import { useEffect, useState, type ReactNode } from "react";
import { ProblemBox } from "./Page";

/** Asks before something is changed, and names what it touches. `repeat` is a name to be typed, for what cannot be undone. */
export function Confirm(props: {
  opened: boolean;
  onClose: () => void;
  title: string;
  children: ReactNode;
  action: string;
  danger?: boolean;
  repeat?: string;
  run: () => Promise<unknown>;
}) {
  const [typed, setTyped] = useState("");
  const [isBusy, setIsBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  useEffect(() => {
    if (props.opened) {
      setTyped("");
      setError(null);
    }
  }, [props.opened]);
  const run = async () => {
    setIsBusy(true);
    setError(null);
    try {
      await props.run();
      props.onClose();
    } catch (failure) {
      setError(failure);
    } finally {
      setIsBusy(false);
    }
  };
  return (
    <Modal opened={props.opened} onClose={props.onClose} title={props.title} centered closeButtonProps={{ "aria-label": "Close" }}>
      <div className="stack">
        <div>{props.children}</div>
        {props.repeat && (
          <TextInput label={`Type ${props.repeat} to confirm`} value={typed} onChange={(event) => setTyped(event.currentTarget.value)} data-autofocus />
        )}
        {error !== null && <ProblemBox error={error} />}
        <div className="row" style={{ justifyContent: "flex-end" }}>
          <Button variant="default" onClick={props.onClose}>
            Cancel
          </Button>
          <Button color={props.danger ? "red.9" : undefined} loading={isBusy} disabled={props.repeat !== undefined && typed !== props.repeat} onClick={() => void run()}>
            {props.action}
          </Button>
        </div>
      </div>
    </Modal>
  );
}

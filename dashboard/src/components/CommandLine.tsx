import { ActionIcon, Tooltip } from "@mantine/core";
import { CheckIcon, CopyIcon } from "@primer/octicons-react";
import { Fragment, useState } from "react";
import { bootstrapOption, useLive } from "../lib/live";

/** Browsers offer the clipboard only to pages of a safe origin, which a gateway on another machine is not. */
export async function copyText(text: string): Promise<void> {
  if (navigator.clipboard) {
    await navigator.clipboard.writeText(text);
    return;
  }
  const field = document.createElement("textarea");
  field.value = text;
  document.body.append(field);
  field.select();
  document.execCommand("copy");
  field.remove();
}

export function CopyButton({ text, label }: { text: string; label: string }) {
  const [done, setDone] = useState(false);
  const copy = () => {
    void copyText(text).then(() => {
      setDone(true);
      setTimeout(() => setDone(false), 1500);
    });
  };
  return (
    <Tooltip label={done ? "Copied" : label}>
      <ActionIcon variant="subtle" color="gray" size="md" onClick={copy} aria-label={label}>
        {done ? <CheckIcon size={14} /> : <CopyIcon size={14} />}
      </ActionIcon>
    </Tooltip>
  );
}

/** The command that prints what the page shows, with the address of this cluster; a local command has no address. */
export function CommandLine({ command, isLocal = false }: { command: string; isLocal?: boolean }) {
  const { overview } = useLive();
  const text = command + (isLocal ? "" : bootstrapOption(overview));
  return (
    <div className="command mono">
      <code tabIndex={0} aria-label={`Command: ${text}`} role="group">
        <span className="prompt">$ </span>
        {text.split(" ").map((word, index) => (
          <Fragment key={index}>
            {index > 0 && " "}
            <span className="word">{word}</span>
          </Fragment>
        ))}
      </code>
      <CopyButton text={text} label="Copy the command" />
    </div>
  );
}

/**
 * A part of the panel under its heading, open or folded away.
 */
import * as React from 'react';

interface ISectionProps {
  title: string;
  count?: string;
  children: React.ReactNode;
}

/** A heading that folds what is below it. */
export function Section({ title, count, children }: ISectionProps): JSX.Element {
  return (
    <details className="jp-gpupool-Section" open>
      <summary>
        <h3>{title}</h3>
        {count !== undefined && <span className="jp-gpupool-Tally">{count}</span>}
      </summary>
      {children}
    </details>
  );
}

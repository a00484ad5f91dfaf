/**
 * A long list of which only what is in sight is drawn.
 */
import * as React from 'react';

const BEYOND = 8; // rows that are drawn above and below what is in sight

interface IRowsProps<T> {
  label: string;
  items: readonly T[];
  /** The height of each row in pixels. */
  height: number;
  /** How many rows are in sight, at most. */
  most: number;
  keyOf: (item: T) => React.Key;
  render: (item: T) => React.ReactNode;
}

/** Rows of equal height; a screen reader hears how many there are, and which it reads. */
export function Rows<T>({ label, items, height, most, keyOf, render }: IRowsProps<T>): JSX.Element {
  const [top, setTop] = React.useState(0);
  const first = Math.max(0, Math.min(Math.floor(top / height), items.length - most) - BEYOND);
  const last = Math.min(items.length, Math.floor(top / height) + most + BEYOND);
  return (
    <div
      className="jp-gpupool-Rows"
      style={{ maxHeight: height * most }}
      tabIndex={0}
      role="region"
      aria-label={label}
      onScroll={event => setTop(event.currentTarget.scrollTop)}
    >
      <ol style={{ height: height * items.length }} aria-label={label}>
        {items.slice(first, last).map((item, index) => (
          <li
            key={keyOf(item)}
            style={{ top: height * (first + index), height }}
            aria-setsize={items.length}
            aria-posinset={first + index + 1}
          >
            {render(item)}
          </li>
        ))}
      </ol>
    </div>
  );
}

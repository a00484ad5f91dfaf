/**
 * What the pool says of itself, by the socket that JupyterLab already holds.
 */
import { Event } from '@jupyterlab/services';

const SCHEMA = 'https://events.jupyter.org/jupyter_gpupool/pool/v1';

/** Something is not as it was; `kind` says what to look at again. */
export interface IPoolEvent {
  kind: string;
  data: Record<string, unknown>;
}

/**
 * Call `heard` with each event of the pool, until the function that is returned is called.
 */
export function listen(events: Event.IManager, heard: (event: IPoolEvent) => void): () => void {
  const slot = (_: unknown, emission: Event.Emission) => {
    if (emission.schema_id === SCHEMA) {
      heard({ kind: String(emission.kind), data: (emission.data ?? {}) as Record<string, unknown> });
    }
  };
  events.stream.connect(slot);
  return () => void events.stream.disconnect(slot);
}

/**
 * Looking at the pool now and then, and soon after something has happened.
 */
import { IPoll, Poll, Throttler } from '@lumino/polling';
import { ISignal, Signal } from '@lumino/signaling';

import { IPoolEvent } from './events';

const GATHER = 1000; // milliseconds: however many events come, the pool is asked once in so long

interface IOptions {
  name: string;
  frequency: Pick<IPoll.Frequency, 'interval' | 'max'>;
  standby: Poll.Standby | (() => boolean | Poll.Standby);
}

/** What knows something of the pool; it asks slower while there is no answer. */
export abstract class Watch {
  constructor({ name, frequency, standby }: IOptions) {
    this.poll = new Poll({
      name,
      factory: () => this.look(),
      frequency: { ...frequency, backoff: true },
      standby
    });
    this.soon = new Throttler(() => this.refresh(), { limit: GATHER, edge: 'trailing' });
  }

  /** Emitted when what is known has changed. */
  get stateChanged(): ISignal<this, void> {
    return this.changed;
  }

  get isDisposed(): boolean {
    return this._isDisposed;
  }

  /** Take note of an event: ask soon, if it is about something that is known here. */
  hear(event: IPoolEvent): void {
    if (this.concerns(event.kind)) {
      void this.soon.invoke();
    }
  }

  /** Ask now. */
  refresh(): void {
    void this.poll.refresh();
  }

  dispose(): void {
    if (this._isDisposed) {
      return;
    }
    this._isDisposed = true;
    this.poll.dispose();
    this.soon.dispose();
    Signal.clearData(this);
  }

  /** Say whether events of a kind change something of what is known here. */
  protected abstract concerns(kind: string): boolean;

  /** Ask; throw where there is no answer. */
  protected abstract look(): Promise<void>;

  protected readonly changed = new Signal<this, void>(this);
  private readonly poll: Poll;
  private readonly soon: Throttler;
  private _isDisposed = false;
}

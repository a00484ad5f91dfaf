/**
 * What the panel knows of the pool, and when it asks again.
 */
import {
  Action,
  byPosition,
  ENDED,
  IJob,
  ILease,
  IQueue,
  IQuota,
  IReservation,
  IWhoami,
  PoolClient,
  PoolError,
  RUNNING,
  WAITING
} from './api';
import { Watch } from './watch';

export const JOBS_SHOWN = 50; // of each kind
export const ENDED_SHOWN = 5;
const INTERVAL = 30 * 1000; // milliseconds, as all below; in between, events tell
const FIRST_AGAIN = 2 * 1000;
const SLOWEST = 60 * 1000;
const WHILE_STARTING = 1000;

/** Events that change nothing of what is shown here. */
const UNSEEN = new Set(['warning', 'request']);

export interface ISeen {
  whoami: IWhoami;
  quota: IQuota;
  queue: IQueue;
  running: IJob[];
  waiting: IJob[];
  ended: IJob[];
  leases: ILease[];
  reservations: IReservation[];
  at: Date;
}

/**
 * The last answers of the pool, and what went wrong since.
 *
 * It asks when an event says that something changed, now and then in any case, slower while there is no answer,
 * and never while nobody looks.
 */
export class PoolModel extends Watch {
  /**
   * @param client - the way to the pool
   * @param isWatched - tells whether the panel is in sight
   */
  constructor(
    private readonly client: PoolClient,
    private readonly isWatched: () => boolean
  ) {
    super({
      name: 'jupyter-gpupool:sidebar',
      frequency: { interval: INTERVAL, max: SLOWEST },
      standby: () => (isWatched() ? 'when-hidden' : true)
    });
  }

  /** What was last seen; null before the first answer. */
  get seen(): ISeen | null {
    return this._seen;
  }

  /** Why the last request had no answer; null when it had one. */
  get problem(): PoolError | null {
    return this._problem;
  }

  /** What the pool said of the last thing to do that it refused; null when it did it. */
  get refusal(): PoolError | null {
    return this._refusal;
  }

  /** Do something to a job, then ask. */
  async act(job: number, action: Action): Promise<void> {
    try {
      await this.client.act(job, action);
      this._refusal = null;
    } catch (error) {
      this._refusal = asPoolError(error);
      this.changed.emit();
    }
    this.refresh();
  }

  /** Start the pool's service, then ask. */
  async start(): Promise<void> {
    try {
      await this.client.start();
    } catch (error) {
      this.failed(error);
    }
    this.refresh();
  }

  protected concerns(kind: string): boolean {
    return this.isWatched() && !UNSEEN.has(kind);
  }

  protected async look(): Promise<void> {
    const { client } = this;
    try {
      const whoami = await client.whoami();
      const [quota, queue, running, waiting, ended, leases, reservations] = await Promise.all([
        client.quota(),
        client.queue(),
        client.jobs(RUNNING, JOBS_SHOWN),
        client.jobs(WAITING, JOBS_SHOWN),
        client.jobs(ENDED, ENDED_SHOWN),
        client.leases(),
        client.reservations()
      ]);
      waiting.sort(byPosition);
      this._seen = { whoami, quota, queue, running, waiting, ended, leases, reservations, at: new Date() };
      this._problem = null;
      this.changed.emit();
    } catch (error) {
      this.failed(error);
      throw error; // so that the poll slows down
    }
  }

  private failed(error: unknown): void {
    const isFirst = this._problem === null;
    this._problem = asPoolError(error);
    this.changed.emit();
    if (this._problem.code === 'starting') {
      this.again(WHILE_STARTING);
    } else if (isFirst) {
      this.again(FIRST_AGAIN);
    }
  }

  private again(after: number): void {
    window.setTimeout(() => this.isDisposed || this.refresh(), after);
  }

  private _seen: ISeen | null = null;
  private _problem: PoolError | null = null;
  private _refusal: PoolError | null = null;
}

function asPoolError(error: unknown): PoolError {
  return error instanceof PoolError ? error : new PoolError('no_server', String(error));
}

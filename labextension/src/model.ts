/**
 * What the panel knows of the pool, and when it asks again.
 */
import { VDomModel } from '@jupyterlab/ui-components';
import { Poll } from '@lumino/polling';

import { IJob, IQuota, IWhoami, PoolClient, PoolError, RUNNING, WAITING } from './api';

export const JOBS_SHOWN = 50; // of each kind
const INTERVAL = 5 * 1000; // milliseconds, as all below
const SLOWEST = 60 * 1000;
const WHILE_STARTING = 1000;

export interface ISeen {
  whoami: IWhoami;
  quota: IQuota;
  running: IJob[];
  waiting: IJob[];
  at: Date;
}

/**
 * The last answers of the pool, and what went wrong since.
 *
 * It asks every few seconds, slower while there is no answer, and never while nobody looks.
 */
export class PoolModel extends VDomModel {
  /**
   * @param client - the way to the pool
   * @param isWatched - tells whether the panel is in sight
   */
  constructor(
    private readonly client: PoolClient,
    isWatched: () => boolean
  ) {
    super();
    this.poll = new Poll({
      name: 'jupyter-gpupool:sidebar',
      factory: () => this.look(),
      frequency: { interval: INTERVAL, backoff: true, max: SLOWEST },
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

  /** Ask now. */
  refresh(): void {
    void this.poll.refresh();
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

  dispose(): void {
    this.poll.dispose();
    super.dispose();
  }

  private async look(): Promise<void> {
    try {
      const whoami = await this.client.whoami();
      const [quota, running, waiting] = await Promise.all([
        this.client.quota(),
        this.client.jobs(RUNNING, JOBS_SHOWN),
        this.client.jobs(WAITING, JOBS_SHOWN)
      ]);
      this._seen = { whoami, quota, running, waiting: waiting.sort(byPosition), at: new Date() };
      this._problem = null;
      this.stateChanged.emit();
    } catch (error) {
      this.failed(error);
      throw error; // so that the poll slows down
    }
  }

  private failed(error: unknown): void {
    this._problem = error instanceof PoolError ? error : new PoolError('no_server', String(error));
    this.stateChanged.emit();
    if (this._problem.code === 'starting') {
      window.setTimeout(() => this.isDisposed || this.refresh(), WHILE_STARTING);
    }
  }

  private readonly poll: Poll;
  private _seen: ISeen | null = null;
  private _problem: PoolError | null = null;
}

/** Next in the queue first; what has no place in it, last. */
function byPosition(one: IJob, other: IJob): number {
  return (one.waiting?.position ?? Infinity) - (other.waiting?.position ?? Infinity) || one.id - other.id;
}

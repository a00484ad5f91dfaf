/**
 * The pool at a glance, and what one is told of it: for the status bar and for notifications.
 *
 * It asks for little, starts nothing, and goes by the pool's events: `tellings` is what of an event its user is to
 * be told.
 */
import { byPosition, IJob, ILease, PoolClient, WAITING } from './api';
import { IPoolEvent } from './events';
import { Watch } from './watch';
import { expected, IWords, size } from './words';

const INTERVAL = 60 * 1000; // milliseconds; in between, events tell
const TOLD_BY = new Set(['job', 'lease', 'lost', 'found']);
const WAITING_KNOWN = 100;

/** Something that its user is told. */
export interface ITelling {
  type: 'info' | 'success' | 'warning' | 'error';
  text: string;
}

/** What the user holds and waits for. */
export class Glance extends Watch {
  constructor(private readonly client: PoolClient) {
    super({
      name: 'jupyter-gpupool:glance',
      frequency: { interval: INTERVAL, max: 2 * INTERVAL },
      standby: 'when-hidden'
    });
  }

  /** The user's name, asked for if it is not known yet; null while there is no answer. */
  async user(): Promise<string | null> {
    try {
      this._user ??= (await this.client.whoami(false)).user;
    } catch {
      return null;
    }
    return this._user;
  }

  /** The user's leases; null while nothing is known. */
  get leases(): ILease[] | null {
    return this._leases;
  }

  /** The user's waiting jobs, the next to start first. */
  get waiting(): IJob[] {
    return this._waiting;
  }

  protected concerns(kind: string): boolean {
    return TOLD_BY.has(kind);
  }

  protected async look(): Promise<void> {
    try {
      [this._leases, this._waiting] = await Promise.all([
        this.client.leases(false),
        this.client.jobs(WAITING, WAITING_KNOWN, false)
      ]);
      this._waiting.sort(byPosition);
    } catch (error) {
      this._leases = null;
      this._waiting = [];
      throw error;
    } finally {
      this.changed.emit();
    }
  }

  private _user: string | null = null;
  private _leases: ILease[] | null = null;
  private _waiting: IJob[] = [];
}

/** What is held, in a few words, and the place of the next job; nothing where there is nothing to say. */
export function inShort(glance: Pick<Glance, 'leases' | 'waiting'>, words: IWords): string {
  const { trans, format } = words;
  const held = (glance.leases ?? []).filter(lease => lease.state === 'held');
  const next = glance.waiting.find(job => job.waiting?.position);
  const parts = held.map(lease => size(lease.request, words));
  if (next?.waiting) {
    const start = next.waiting.expected_start;
    const where = trans.__('#%1 in the queue', next.waiting.position);
    parts.push(start ? `${where}, ${format.time(new Date(start))}` : where);
  }
  return parts.join(' · ');
}

/** The same in full sentences. */
export function inFull(glance: Pick<Glance, 'leases' | 'waiting'>, words: IWords): string {
  const { trans, format } = words;
  const held = (glance.leases ?? []).filter(lease => lease.state === 'held');
  const sessions = held.map(lease =>
    lease.expires_at
      ? trans.__('You hold %1 until %2.', size(lease.request, words), format.time(new Date(lease.expires_at)))
      : trans.__('You hold %1.', size(lease.request, words))
  );
  const next = glance.waiting.find(job => job.waiting?.position);
  const jobs = next?.waiting
    ? [
        trans._n('%1 job of yours waits.', '%1 jobs of yours wait.', glance.waiting.length),
        trans.__('The next is %1 in the queue.', next.waiting.position),
        expected(next.waiting, words)
      ]
    : [];
  return [...sessions, ...jobs].join(' ');
}

/**
 * What a user is told of an event: nothing of other people's jobs, and nothing that they did a moment ago themselves.
 */
export function telling(event: IPoolEvent, user: string | null, words: IWords): ITelling | null {
  const { trans, format } = words;
  const { data } = event;
  if (event.kind === 'warning' && typeof data.text === 'string') {
    const ends = typeof data.ends_at === 'string' ? trans.__('It ends %1.', format.time(new Date(data.ends_at))) : '';
    return { type: 'warning', text: [data.text, ends].filter(Boolean).join(' ') };
  }
  if (event.kind !== 'job' || data.user !== user || user === null) {
    return null;
  }
  const job = `${data.job} ${data.name ?? ''}`.trim();
  switch (data.state) {
    case 'running':
      return { type: 'info', text: trans.__('Job %1 has started.', job) };
    case 'completed':
      return { type: 'success', text: trans.__('Job %1 has completed.', job) };
    case 'failed':
      return { type: 'error', text: trans.__('Job %1 has failed.', job) };
    case 'timed_out':
      return { type: 'error', text: trans.__('Job %1 reached its time limit.', job) };
    case 'stopping':
      return { type: 'warning', text: trans.__('Job %1 is asked to stop.', job) };
    default:
      return null;
  }
}

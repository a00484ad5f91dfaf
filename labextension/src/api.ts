/**
 * The pool's REST, and the shapes of its answers.
 */

/** Sends a request to a path of the pool's REST; how it gets there is for who makes the client to say. */
export type Send = (path: string, init: RequestInit) => Promise<Response>;

/** Integers by resource: thousandths of GPUs and CPUs, MiB of memory. */
export interface IAmounts {
  gpus_milli?: number;
  cpus_milli?: number;
  memory_mib?: number;
}

export interface IWhoami {
  user: string;
  simulated: boolean;
  pool: string | null;
}

export interface ILoan {
  group: string;
  gpus_milli: number;
  until: string;
}

export interface IGroupQuota {
  name: string;
  quota: IAmounts;
  used: IAmounts;
  user: { limits: IAmounts; used: IAmounts };
  over_since: string | null;
  lent: ILoan[];
  borrowed: ILoan[];
}

export interface IQuota {
  user: string;
  groups: IGroupQuota[];
}

export const RUNNING = ['running', 'starting', 'stopping'] as const;
export const WAITING = ['queued', 'held'] as const;
export const ENDED = ['completed', 'failed', 'cancelled', 'timed_out'] as const;

export type ActiveState = (typeof RUNNING)[number] | (typeof WAITING)[number];
export type State = ActiveState | (typeof ENDED)[number];

/** What is done to a job. */
export type Action = 'cancel' | 'hold' | 'release' | 'requeue';

/** What work asks for. */
export interface IRequest {
  gpus: number;
  gpu_mib: number;
  gpu_types: string[];
  cpus_milli: number;
  memory_mib: number;
}

/** Why something waits, and until when. */
export interface IWaiting {
  reason: string;
  message: string;
  position: number | null;
  expected_start: string | null;
  kind: 'promise' | 'estimate' | null;
}

/** Where work runs. */
export interface IPlacement {
  nodes: string[];
  gpus: { uuid: string; mib: number; index: number | null; node: string | null }[];
  mode: string;
  isolation: string;
}

/** One job, or an array as a whole; of another's job, what only its owner may see is null. */
export interface IJob {
  id: number;
  name: string | null;
  state: State;
  user: string | null;
  group: string;
  priority: string;
  request: IRequest;
  started_at: string | null;
  ended_at: string | null;
  expires_at: string | null;
  exit_code: number | null;
  reason: string | null;
  waiting: IWaiting | null;
  placement: IPlacement | null;
  progress: { fraction: number | null } | null;
  array: { tasks: string; count: number; states: Record<string, number> } | null;
  array_id: number | null;
  array_index: number | null;
}

/** Sorts jobs: next in the queue first; what has no place in it, last. */
export function byPosition(one: IJob, other: IJob): number {
  return (one.waiting?.position ?? Infinity) - (other.waiting?.position ?? Infinity) || one.id - other.id;
}

export interface IQueue {
  waiting: IJob[];
  running: IJob[];
}

/** Interactive work that holds a slice, or waits for one; `server` names the Hub's server it is for. */
export interface ILease {
  id: number;
  state: string;
  group: string;
  server: string | null;
  request: IRequest;
  started_at: string | null;
  expires_at: string | null;
  waiting: IWaiting | null;
  placement: IPlacement | null;
}

/** Cards that are set apart for some, or for nobody. */
export interface IReservation {
  id: number;
  cards: { uuid: string }[];
  groups: string[];
  maintenance: boolean;
  start: string | null;
  until: string | null;
  because: string | null;
  phase: 'coming' | 'now' | 'over';
}

/** A refusal of the service, or the server's word that there is no service to ask; can the user start one? */
export class PoolError extends Error {
  constructor(
    readonly code: string,
    message: string,
    readonly hint: string | null = null,
    readonly startable: boolean = false
  ) {
    super(message);
  }
}

/** Requests to the pool. */
export class PoolClient {
  constructor(private readonly send: Send) {}

  /** Who asks; as all that takes `mayStart`, with false only if the user's own service need not be started for it. */
  whoami(mayStart = true): Promise<IWhoami> {
    return this.request(look('whoami', {}, mayStart));
  }

  quota(): Promise<IQuota> {
    return this.request('quota');
  }

  /** What waits, in order, and what runs, of everybody. */
  queue(): Promise<IQueue> {
    return this.request('queue');
  }

  /** The user's newest jobs in one of the states. */
  async jobs(states: readonly State[], limit: number, mayStart = true): Promise<IJob[]> {
    const path = look('jobs', { state: states.join(','), limit: `${limit}` }, mayStart);
    return (await this.request<{ jobs: IJob[] }>(path)).jobs;
  }

  /** The user's leases. */
  async leases(mayStart = true): Promise<ILease[]> {
    return (await this.request<{ leases: ILease[] }>(look('leases', {}, mayStart))).leases;
  }

  /** Reservations and maintenance that hold or will. */
  async reservations(): Promise<IReservation[]> {
    return (await this.request<{ reservations: IReservation[] }>('reservations')).reservations;
  }

  /** Do something to a job. */
  async act(job: number, action: Action): Promise<void> {
    await this.request(`jobs/${job}/${action}`, { method: 'POST' });
  }

  /** Ask for the service to be started where it is not running. */
  async start(): Promise<void> {
    await this.request('start', { method: 'POST' });
  }

  private async request<T>(path: string, init: RequestInit = {}): Promise<T> {
    const response = await this.send(path, init);
    const text = await response.text();
    if (!response.ok) {
      throw asError(response.status, text);
    }
    return (text ? JSON.parse(text) : undefined) as T;
  }
}

function look(path: string, given: Record<string, string>, mayStart: boolean): string {
  const query = new URLSearchParams(mayStart ? given : { ...given, start: 'no' }).toString();
  return query ? `${path}?${query}` : path;
}

function asError(status: number, text: string): PoolError {
  try {
    const { error, startable } = JSON.parse(text);
    return new PoolError(error.code, error.message, error.hint, startable);
  } catch {
    return new PoolError('unexpected_reply', `Jupyter Server answered with HTTP status ${status}.`);
  }
}

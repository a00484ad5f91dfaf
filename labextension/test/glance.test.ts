import { PoolClient } from '../src/api';
import { Glance, inFull, inShort, telling } from '../src/glance';
import { job, lease } from './jobs';
import { words } from './words';

describe('at a glance', () => {
  it('says what is held and the place of the next job', () => {
    const seen = { leases: [lease()], waiting: [job(4), job(9)] };
    expect(inShort(seen, words)).toBe('4 GiB of a GPU · #4 in the queue');
    expect(inFull(seen, words)).toBe(
      'You hold 4 GiB of a GPU. 2 jobs of yours wait. The next is 4 in the queue. Start not known yet.'
    );
  });

  it('says nothing where there is nothing to say', () => {
    const ended = lease({ state: 'ended' });
    expect(inShort({ leases: null, waiting: [] }, words)).toBe('');
    expect(inShort({ leases: [ended], waiting: [job(1, { state: 'held', waiting: null })] }, words)).toBe('');
  });

  it('asks for little, starts nothing, and forgets what it knew when the pool is away', async () => {
    jest.useFakeTimers();
    const asked: string[] = [];
    let up = true;
    const client = new PoolClient(async path => {
      asked.push(path);
      const body = { user: 'ada', leases: [lease()], jobs: [job(8), job(2)] };
      const refusal = { error: { code: 'not_running', message: 'Away.', hint: null } };
      return { ok: up, status: up ? 200 : 503, text: async () => JSON.stringify(up ? body : refusal) } as Response;
    });
    const glance = new Glance(client);
    await jest.advanceTimersByTimeAsync(1000);
    expect(asked.every(path => path.includes('start=no'))).toBe(true);
    expect(asked.length).toBe(2);
    expect(await glance.user()).toBe('ada');
    expect(await glance.user()).toBe('ada');
    expect(asked.slice(2)).toEqual(['whoami?start=no']);
    expect(glance.waiting.map(one => one.id)).toEqual([2, 8]);
    up = false;
    glance.hear({ kind: 'lost', data: {} });
    await jest.advanceTimersByTimeAsync(2000);
    expect(glance.leases).toBeNull();
    expect(await glance.user()).toBe('ada');
    const stranger = new Glance(client);
    expect(await stranger.user()).toBeNull();
    stranger.dispose();
    glance.dispose();
    jest.useRealTimers();
  });
});

describe('what one is told', () => {
  const event = (state: string, user = 'ada') => ({ kind: 'job', data: { job: 7, name: 'train', state, user } });

  it.each([
    ['running', 'info', 'Job 7 train has started.'],
    ['completed', 'success', 'Job 7 train has completed.'],
    ['failed', 'error', 'Job 7 train has failed.'],
    ['timed_out', 'error', 'Job 7 train reached its time limit.'],
    ['stopping', 'warning', 'Job 7 train is asked to stop.']
  ])('of a job that is %s', (state, type, text) => {
    expect(telling(event(state), 'ada', words)).toEqual({ type, text });
  });

  it("is nothing of others' jobs, nor what one did oneself", () => {
    expect(telling(event('failed', 'bo'), 'ada', words)).toBeNull();
    expect(telling({ kind: 'job', data: { job: 7, state: 'failed', user: null } }, null, words)).toBeNull();
    expect(telling(event('queued'), 'ada', words)).toBeNull();
    expect(telling(event('cancelled'), 'ada', words)).toBeNull();
  });

  it('is every warning, with when it ends', () => {
    const data = { lease: 3, text: 'Your session ends soon.', ends_at: '2030-01-01T08:00:00Z' };
    const told = telling({ kind: 'warning', data }, 'ada', words);
    expect(told?.type).toBe('warning');
    expect(told?.text).toMatch(/^Your session ends soon\. It ends .*\.$/);
  });
});

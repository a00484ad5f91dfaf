import { PoolClient } from '../src/api';
import { PoolModel } from '../src/model';

/** A pool that counts what it is asked, and answers while it is `up`. */
class Pool {
  up = true;
  asked: string[] = [];

  readonly client = new PoolClient(async (path, init) => {
    this.asked.push(`${init.method ?? 'GET'} ${path}`);
    const refused = { error: { code: 'service_down', message: 'Away.', hint: null }, startable: false };
    const found = { jobs: [], leases: [], reservations: [], groups: [], waiting: [], running: [], user: 'ada' };
    const status = this.up ? 200 : 503;
    return { ok: this.up, status, text: async () => JSON.stringify(this.up ? found : refused) } as Response;
  });

  looks(): number {
    return this.asked.filter(request => request === 'GET whoami').length;
  }
}

describe('the model', () => {
  let pool: Pool;
  let model: PoolModel;
  let isWatched: boolean;

  beforeEach(() => {
    jest.useFakeTimers();
    pool = new Pool();
    isWatched = true;
    model = new PoolModel(pool.client, () => isWatched);
  });

  afterEach(() => {
    model.dispose();
    jest.useRealTimers();
  });

  const pass = (seconds: number) => jest.advanceTimersByTimeAsync(1000 * seconds);

  it('asks once in a second, however much happens', async () => {
    await pass(1);
    const before = pool.looks();
    for (let number = 0; number < 50; number++) {
      model.hear({ kind: 'job', data: { job: number } });
    }
    await pass(2);
    expect(pool.looks() - before).toBe(1);
  });

  it('does not ask for what is not shown, or while nobody looks', async () => {
    await pass(1);
    const before = pool.looks();
    model.hear({ kind: 'warning', data: {} });
    isWatched = false;
    model.hear({ kind: 'job', data: {} });
    await pass(5);
    expect(pool.looks()).toBe(before);
  });

  it('keeps what it saw while the pool is away, and sees it come back', async () => {
    await pass(1);
    expect(model.seen?.whoami.user).toBe('ada');
    pool.up = false;
    model.hear({ kind: 'lost', data: {} });
    await pass(2);
    expect(model.problem?.code).toBe('service_down');
    expect(model.seen).not.toBeNull();
    pool.up = true;
    model.hear({ kind: 'found', data: {} });
    await pass(2);
    expect(model.problem).toBeNull();
  });

  it('tells of a refusal until something is done', async () => {
    await pass(1);
    pool.up = false;
    await model.act(7, 'hold');
    expect(model.refusal?.message).toBe('Away.');
    pool.up = true;
    await model.act(7, 'hold');
    expect(model.refusal).toBeNull();
    expect(pool.asked).toContain('POST jobs/7/hold');
  });
});

import { PoolClient, PoolError } from '../src/api';

function answers(status: number, body: string): { client: PoolClient; asked: [string, RequestInit][] } {
  const asked: [string, RequestInit][] = [];
  const reply = { ok: status < 400, status, text: async () => body } as Response;
  const client = new PoolClient(async (path, init) => {
    asked.push([path, init]);
    return reply;
  });
  return { client, asked };
}

describe('the client', () => {
  it('asks for jobs by their states', async () => {
    const { client, asked } = answers(200, '{"jobs": [{"id": 7}]}');
    expect(await client.jobs(['running', 'queued'], 5)).toEqual([{ id: 7 }]);
    expect(asked).toEqual([['jobs?state=running%2Cqueued&limit=5', {}]]);
  });

  it('can ask without starting anything', async () => {
    const { client, asked } = answers(200, '{"leases": []}');
    await client.leases(false);
    expect(asked[0][0]).toBe('leases?start=no');
  });

  it('does something to a job by POST', async () => {
    const { client, asked } = answers(200, '{}');
    await client.act(17, 'requeue');
    expect(asked).toEqual([['jobs/17/requeue', { method: 'POST' }]]);
  });

  it("passes a refusal on in the service's own words", async () => {
    const error = { code: 'conflict', message: 'Job 17 has ended.', hint: 'Clone it.' };
    const { client } = answers(409, JSON.stringify({ error, startable: true }));
    await expect(client.act(17, 'hold')).rejects.toEqual(
      new PoolError('conflict', 'Job 17 has ended.', 'Clone it.', true)
    );
    await expect(client.act(17, 'hold')).rejects.toMatchObject({ hint: 'Clone it.', startable: true });
  });

  it('says so when the answer is none of the pool', async () => {
    const { client } = answers(502, '<html>Bad gateway</html>');
    await expect(client.quota()).rejects.toMatchObject({
      code: 'unexpected_reply',
      message: 'Jupyter Server answered with HTTP status 502.'
    });
  });
});

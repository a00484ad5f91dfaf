import { fireEvent, render, screen, within } from '@testing-library/react';
import * as React from 'react';

import { Action, IGroupQuota, IJob, PoolError } from '../src/api';
import { Ahead } from '../src/parts/ahead';
import { Jobs } from '../src/parts/jobs';
import { Problem } from '../src/parts/notices';
import { Queue } from '../src/parts/queue';
import { Quota } from '../src/parts/quota';
import { Sessions } from '../src/parts/sessions';
import { job, lease } from './jobs';
import { words } from './words';

function group(more: Partial<IGroupQuota> = {}): IGroupQuota {
  return {
    name: 'vision',
    quota: { gpus_milli: 6000 },
    used: { gpus_milli: 6125 },
    user: { limits: {}, used: {} },
    over_since: null,
    lent: [],
    borrowed: [],
    ...more
  };
}

describe('quota', () => {
  it('shows a bar that a screen reader reads, full when more is used than owed', () => {
    render(<Quota {...words} groups={[group()]} />);
    const bar = screen.getByRole('progressbar', { name: 'GPUs, group vision' });
    expect(bar.getAttribute('aria-valuetext')).toBe('6.125 of 6');
    expect(bar.getAttribute('aria-valuenow')).toBe('6000');
    expect(bar.className).toContain('jp-mod-over');
  });

  it('says since when a group is over quota, and from whom it borrows', () => {
    const borrowed = [{ group: 'nlp', gpus_milli: 2000, until: '2030-01-01T08:00:00Z' }];
    render(<Quota {...words} groups={[group({ over_since: '2030-01-01T01:00:00Z', borrowed })]} />);
    expect(screen.getByText(/^Over quota since .*: what is borrowed goes back when it is needed\.$/)).toBeTruthy();
    expect(screen.getByText(/^Has 2 GPUs of nlp until about /)).toBeTruthy();
  });

  it('tells who is in no group', () => {
    render(<Quota {...words} groups={[]} />);
    expect(screen.getByText(/You are in no group of this pool/)).toBeTruthy();
  });
});

describe('my jobs', () => {
  function shown(found: IJob): { acted: [number, Action][] } {
    const acted: [number, Action][] = [];
    render(
      <Jobs {...words} running={[found]} waiting={[]} ended={[]} onAct={(one, act) => acted.push([one.id, act])} />
    );
    return { acted };
  }

  it.each([
    ['queued', ['Hold job 7', 'Cancel job 7']],
    ['held', ['Release job 7', 'Cancel job 7']],
    ['running', ['Requeue job 7', 'Cancel job 7']],
    ['stopping', []],
    ['completed', []]
  ] as [IJob['state'], string[]][])('offers what can be done to one that is %s', (state, names) => {
    shown(job(7, { state }));
    expect(screen.queryAllByRole('button').map(button => button.getAttribute('aria-label'))).toEqual(names);
  });

  it('does what is asked', () => {
    const { acted } = shown(job(7, { state: 'running' }));
    fireEvent.click(screen.getByRole('button', { name: 'Cancel job 7' }));
    expect(acted).toEqual([[7, 'cancel']]);
  });

  it('shows how far a job is, and names a task by its array', () => {
    shown(job(9, { state: 'running', progress: { fraction: 0.25 }, array_id: 4, array_index: 2 }));
    expect(screen.getByRole('progressbar', { name: 'Progress of job 4_2' }).getAttribute('aria-valuetext')).toBe('25%');
  });

  it('says why one failed', () => {
    shown(job(9, { state: 'failed', waiting: null, reason: 'Out of GPU memory.' }));
    expect(screen.getByText('Out of GPU memory.')).toBeTruthy();
  });

  it('says how to submit where there are none', () => {
    render(<Jobs {...words} running={[]} waiting={[]} ended={[]} onAct={() => undefined} />);
    expect(screen.getByText('%gpupool submit train.py')).toBeTruthy();
  });
});

describe('the queue', () => {
  const long = Array.from({ length: 1000 }, (_, index) => job(index + 1));

  it('draws only what is in sight of a thousand jobs, and tells how many there are', () => {
    render(<Queue {...words} queue={{ waiting: long, running: [] }} user="ada" />);
    const rows = screen.getAllByRole('listitem');
    expect(rows.length).toBeLessThan(40);
    expect(rows[0].getAttribute('aria-setsize')).toBe('1000');
    expect(rows[0].getAttribute('aria-posinset')).toBe('1');
  });

  it('draws what one scrolls to', () => {
    render(<Queue {...words} queue={{ waiting: long, running: [] }} user="ada" />);
    const scrolled = screen.getByRole('region', { name: 'What waits, in order' });
    const last = parseInt((scrolled.firstElementChild as HTMLElement).style.height, 10);
    fireEvent.scroll(scrolled, { target: { scrollTop: last } });
    expect(screen.getByText(/^1000 train-1000/)).toBeTruthy();
    expect(screen.queryByText(/^1 train-1 /)).toBeNull();
  });

  it('shows owner, size, priority, expected start and reason', () => {
    const waiting = {
      reason: 'GroupQuota',
      message: 'vision uses 6 of 6 GPUs.',
      position: 1,
      expected_start: new Date().toISOString(),
      kind: 'promise' as const
    };
    const one = job(5, { user: 'bo', priority: 'high', waiting });
    render(<Queue {...words} queue={{ waiting: [one], running: [] }} user="ada" />);
    const row = screen.getByRole('listitem');
    for (const text of ['bo', '1 GPU', 'Priority high, waiting.', 'vision uses 6 of 6 GPUs.', /^Will start by /]) {
      expect(within(row).getByText(text)).toBeTruthy();
    }
  });

  it('keeps to what may be seen of others', () => {
    const hidden = job(5, { user: null, name: null });
    render(<Queue {...words} queue={{ waiting: [hidden], running: [] }} user="ada" />);
    expect(screen.getByText('somebody of vision')).toBeTruthy();
  });

  it('says what it means when nothing waits', () => {
    render(<Queue {...words} queue={{ waiting: [], running: [job(1)] }} user="ada" />);
    expect(screen.getByText(/Nothing waits/)).toBeTruthy();
    expect(screen.getByText('1 job is running.')).toBeTruthy();
  });
});

describe('my sessions', () => {
  it('puts this server first, with what it holds, where, and how it is kept apart', () => {
    const placement = {
      nodes: ['node1'],
      gpus: [{ uuid: 'GPU-1', mib: 4096, index: 3, node: 'node1' }],
      mode: 'timeslice',
      isolation: 'memory is capped by frameworks'
    };
    render(<Sessions {...words} leases={[lease({ id: 1, server: 'big' }), lease({ placement })]} server="" />);
    const [first, second] = screen.getAllByRole('listitem');
    expect(within(first).getByText('This server')).toBeTruthy();
    expect(within(first).getByText('4 GiB of a GPU')).toBeTruthy();
    expect(within(first).getByText('node1:3 · timeslice').getAttribute('title')).toBe('memory is capped by frameworks');
    expect(within(second).getByText('Server big')).toBeTruthy();
  });

  it('says when this server has no GPU', () => {
    render(<Sessions {...words} leases={[]} server="" />);
    expect(screen.getByText(/This server has no GPU/)).toBeTruthy();
  });

  it('is not there without a Hub and without sessions', () => {
    const { container } = render(<Sessions {...words} leases={[]} server={null} />);
    expect(container.childElementCount).toBe(0);
  });
});

describe('what is set apart', () => {
  it('names for whom, how much and why, and leaves out what is over', () => {
    const one = {
      id: 1,
      cards: [{ uuid: 'a' }, { uuid: 'b' }],
      groups: ['nlp'],
      maintenance: false,
      start: '2030-01-01T00:00:00Z',
      until: null,
      because: 'a deadline',
      phase: 'now' as const
    };
    render(<Ahead {...words} reservations={[one, { ...one, id: 2, phase: 'over', groups: ['vision'] }]} />);
    expect(screen.getAllByRole('listitem').length).toBe(1);
    for (const text of ['Reserved for nlp', '2 GPUs', 'a deadline', 'Until it is ended.']) {
      expect(screen.getByText(text)).toBeTruthy();
    }
  });
});

describe('no answer', () => {
  it('says from when what is shown is', () => {
    const problem = new PoolError('service_down', 'The service does not answer.');
    render(<Problem {...words} problem={problem} seenAt={new Date()} onStart={() => undefined} />);
    expect(within(screen.getByRole('alert')).getByText(/^What you see below is from /)).toBeTruthy();
    expect(screen.queryByRole('button')).toBeNull();
  });

  it("offers to start the user's own service", () => {
    const started = jest.fn();
    const problem = new PoolError('not_running', 'It ended.');
    render(<Problem {...words} problem={problem} seenAt={null} onStart={started} />);
    fireEvent.click(screen.getByRole('button', { name: 'Start the pool' }));
    expect(started).toHaveBeenCalledTimes(1);
  });
});

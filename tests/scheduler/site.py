"""A node of cards, who runs there, and what a decision says of them."""

NOW = 10_000
GRACE = 120


def told(decided):
    return [(stop.lease, stop.cause, stop.taker) for stop in decided.stops]


class Site:
    """One node of cards; `run` makes a resumable job that has run for an hour and lasts for days."""

    def __init__(self, pool, cards=4, groups=(("a", 2), ("b", 2)), nodes=1, **more):
        self.pool = pool
        self.cards = pool.gpus(cards, nodes=nodes)
        self.groups = [pool.group(*group) if isinstance(group, tuple) else group for group in groups]
        self.more = more

    def run(self, id_, group, first, cards=1, start=NOW - 3600, **more):
        more = {
            "resumable": True,
            "grace": GRACE,
            "limit": 10**6,
            "submitted": 0,
            "user": f"u{group}",
            **more,
        }
        job = self.pool.job(id_, cards, group=group, **more)
        return self.pool.lease(job, self.cards[first : first + cards], start + job.limit, start=start)

    def want(self, id_, group, cards=1, **more):
        more = {"submitted": NOW - 100, "user": f"u{group}", "limit": 3600, **more}
        return self.pool.job(id_, cards, group=group, **more)

    def snapshot(self, waiting, leases, **more):
        return self.pool.snapshot(
            waiting, leases, gpus=self.cards, groups=self.groups, **{**self.more, **more}
        )

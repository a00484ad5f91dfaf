from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpupool.scheduler.timeline import FOREVER, Profile, meet

bookings = st.lists(
    st.tuples(st.integers(0, 20), st.integers(1, 15), st.integers(1, 4)).map(
        lambda b: (b[0], b[0] + b[1], b[2])
    ),
    max_size=8,
)


def levels(booked, capacity=6):
    return [capacity - sum(a for first, last, a in booked if first <= t < last) for t in range(60)]


def profile(booked, read_between):
    made = Profile(6)
    for first, last, amount in booked:
        made.book(first, last, amount)
        if read_between:
            made.at(0)
    return made


@given(bookings, st.booleans(), st.integers(1, 6), st.integers(1, 12), st.integers(0, 25))
def test_a_profile_is_what_is_free_second_by_second(booked, read_between, need, length, after):
    free = levels(booked)
    made = profile(booked, read_between)
    assert [made.at(time) for time in range(60)] == free
    fitting = [t for t in range(after, 45) if min(free[t : t + length]) >= need]
    assert [t for t in range(after, 45) if made.fits(need, t, t + length)] == fitting
    openings = made.openings(need, length, after)
    assert [t for t in range(after, 45) if any(a <= t <= b for a, b in openings)] == fitting
    lasting = next((t for t in range(after, 60) if free[t] < need), FOREVER)
    assert made.reach(need, after) == lasting


@given(bookings, bookings, st.booleans(), st.integers(1, 6))
def test_what_is_given_back_is_free_again(booked, others, read_between, need):
    made = profile(booked, read_between)
    for first, last, amount in others:
        made.book(first, last, amount)
        assert made.at(0) <= made.capacity
    for first, last, amount in others:
        made.book(first, last, -amount)
    free = levels(booked)
    assert [made.at(time) for time in range(60)] == free
    assert [made.fits(need, t, 50) for t in range(45)] == [min(free[t:50]) >= need for t in range(45)]
    assert all(free[t] <= free[t + 1] for t in range(59) if made.grows(t))


@given(bookings, bookings, st.integers(0, 30), st.integers(1, 6))
def test_what_is_past_is_forgotten_and_nothing_else(booked, later, time, need):
    made = profile(booked, read_between=True)
    made.forget(time)
    for first, last, amount in later:
        made.book(max(first, time), max(last, time + 1), amount)
    free = levels(booked + [(max(first, time), max(last, time + 1), amount) for first, last, amount in later])
    assert [made.at(moment) for moment in range(time, 60)] == free[time:]
    assert [made.fits(need, t, 50) for t in range(time, 45)] == [
        min(free[t:50]) >= need for t in range(time, 45)
    ]


def test_exact_fit_one_below_and_one_above():
    made = Profile(4)
    made.book(10, 20, 3)
    assert made.fits(1, 10, 20)
    assert not made.fits(2, 10, 20)
    assert made.fits(4, 0, 10)
    assert not made.fits(4, 0, 11)
    assert made.fits(4, 20, 30)


def test_meeting_intervals():
    assert meet([(0, 5), (8, FOREVER)], [(3, 9), (20, 30)]) == [(3, 5), (8, 9), (20, 30)]
    assert meet([(0, 2)], [(3, 4)]) == []

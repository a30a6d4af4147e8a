package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"deeplink/bench/prove/faults/proxy"
	"deeplink/bench/prove/fleet"
)

// Each attack here combines several faults in an order in which only one rule of the protocol prevents a stale response.

// claimsOf claims a member with its links.
func claimsOf(m *member) []string { return []string{m.name, m.postgres.Addr(), m.redis.Addr()} }

// mend heals both links of a member.
func mend(m *member) func(context.Context) error {
	return func(context.Context) error {
		return errors.Join(m.postgres.Set(proxy.Rules{}), m.redis.Set(proxy.Rules{}))
	}
}

var hung = both(proxy.Flow{Hang: true})

func slowToAnswer(late time.Duration) proxy.Rules { return proxy.Rules{Down: proxy.Flow{Delay: late}} }

// renewal waits until the next poll of an edge has renewed its row, at most for a lease.
func (r *rig) renewal(ctx context.Context, m *member) {
	ctx, cancel := context.WithTimeout(ctx, fleet.Lease)
	defer cancel()
	for first := r.renewals(ctx, m); r.renewals(ctx, m) == first && fleet.Pause(ctx, 10*time.Millisecond); {
	}
}

// renewals returns how often an edge renewed its row, 0 if it has none or Postgres is unreachable.
func (r *rig) renewals(ctx context.Context, m *member) (n int64) {
	_ = r.owner.QueryRow(ctx, `select renewals from edges where slot = $1`, m.addr).Scan(&n)
	return n
}

// withoutS is the edge whose S is 0. Control calls a change complete when the lease of that edge has ended, so the checker detects a lease
// that is slightly too long; the other edges may continue for S in any case.
func (r *rig) withoutS() *member { return r.edges[len(r.edges)-1] }

// victim is the edge without S more often than not.
func victim(r *rig, random *rand.Rand) *member {
	if random.IntN(2) == 0 {
		return r.withoutS()
	}
	return pick(random, r.edges)
}

// cutOff leaves an edge with nothing but its lease. Only then does a lease that ends too late become visible. Messages of Redis are lost
// meanwhile: once reconnected, the edge learns of changes only from its poll.
func cutOff(m *member, random *rand.Rand) attack {
	return attack{
		what: m.name + " is cut off from Postgres and Redis", claims: claimsOf(m), hold: fleet.Between(random, 3*fleet.Lease/2, 3*fleet.Lease),
		inflict: func(context.Context) error { return errors.Join(m.redis.Set(hung), m.postgres.Set(hung)) },
		heal: func(ctx context.Context) error {
			m.redis.Cut()
			return mend(m)(ctx)
		},
	}
}

// edgeSlowThenCutOff delays the responses to the last poll of an edge, and then cuts the edge off from everything. A lease that counted
// from the response would be too long by the delay.
func edgeSlowThenCutOff(r *rig, random *rand.Rand) attack {
	m := r.withoutS()
	late, long := fleet.Between(random, 150*time.Millisecond, 350*time.Millisecond), fleet.Between(random, fleet.Lease/4, fleet.Lease/2)
	return attack{
		what: fmt.Sprintf("%s receives from Postgres %v late, and then nothing", m.name, late), claims: claimsOf(m), hold: 2 * fleet.Lease,
		inflict: func(ctx context.Context) error {
			err := m.postgres.Set(slowToAnswer(late))
			fleet.Pause(ctx, long)
			r.renewal(ctx, m)
			fleet.Pause(ctx, 7*late/4) // the second query of the poll was sent, and its result is still on the way
			last := proxy.Rules{Up: proxy.Flow{Hang: true}, Down: proxy.Flow{Delay: late}}
			return errors.Join(err, m.postgres.Set(last), m.redis.Set(hung))
		},
		heal: mend(m),
	}
}

// edgeLeavesSlowly stops an edge in order while its traffic from Postgres is delayed and it gets nothing from Redis. Once its row is gone,
// control does not wait for it, even if the edge has not yet received that result.
func edgeLeavesSlowly(r *rig, random *rand.Rand) attack {
	m := victim(r, random)
	late := fleet.Between(random, 300*time.Millisecond, 450*time.Millisecond)
	return attack{
		what: fmt.Sprintf("%s leaves and hears from Postgres %v late", m.name, late), claims: claimsOf(m), hold: 300 * time.Millisecond,
		inflict: func(ctx context.Context) error {
			return errors.Join(m.redis.Set(hung), m.postgres.Set(slowToAnswer(late)), m.stop(ctx))
		},
		heal: func(ctx context.Context) error { return errors.Join(mend(m)(ctx), m.launchAgain()) },
	}
}

// edgeComesBackSlowly starts an edge again without Redis and with a slow Postgres. It has no row at that time: control does not wait for
// it, and sends it no hint about what it loads before its first poll.
func edgeComesBackSlowly(r *rig, random *rand.Rand) attack {
	m := victim(r, random)
	late := fleet.Between(random, 30*time.Millisecond, 80*time.Millisecond)
	return attack{
		what: fmt.Sprintf("%s comes back %v away from Postgres and without Redis", m.name, late), claims: claimsOf(m),
		hold: fleet.Lease,
		inflict: func(ctx context.Context) error {
			return errors.Join(m.stop(ctx), m.redis.Set(hung), m.postgres.Set(both(proxy.Flow{Delay: late})), m.launchAgain())
		},
		heal: mend(m),
	}
}

// edgeSlowWithoutRedis makes an edge fill its cache slowly and learn of changes only from its poll.
func edgeSlowWithoutRedis(r *rig, random *rand.Rand) attack {
	m := victim(r, random)
	late := fleet.Between(random, 20*time.Millisecond, 150*time.Millisecond)
	return attack{
		what: fmt.Sprintf("%s hears from Postgres %v late and not from Redis", m.name, late), claims: claimsOf(m),
		hold: fleet.Between(random, fleet.Lease, 2*fleet.Lease),
		inflict: func(context.Context) error {
			return errors.Join(m.redis.Set(hung), m.postgres.Set(slowToAnswer(late)))
		},
		heal: mend(m),
	}
}

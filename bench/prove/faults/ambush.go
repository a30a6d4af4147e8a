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

// The attacks here are made of several, in an order in which a rule of the protocol is all that stands between an edge and an
// old answer.

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

// renewal waits for the next poll of an edge to renew its row, for a lease at most.
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

// withoutS is the edge without S. Control calls a change complete when that one's lease is over, so that a lease which is too
// long by a little is seen; the others may go on for S anyhow.
func (r *rig) withoutS() *member { return r.edges[len(r.edges)-1] }

// victim is more often than not the edge without S.
func victim(r *rig, random *rand.Rand) *member {
	if random.IntN(2) == 0 {
		return r.withoutS()
	}
	return pick(random, r.edges)
}

// cutOff leaves an edge with its lease and nothing else. Whether that ends in time is seen only now. What Redis said meanwhile is
// lost: when the edge is back, its poll alone tells it.
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

// edgeSlowThenCutOff lets the answers to the last poll of an edge come home late, and nothing reach it or Postgres after them: a
// lease that counted from the reply would be too long by as much.
func edgeSlowThenCutOff(r *rig, random *rand.Rand) attack {
	m := r.withoutS()
	late, long := fleet.Between(random, 150*time.Millisecond, 350*time.Millisecond), fleet.Between(random, fleet.Lease/4, fleet.Lease/2)
	return attack{
		what: fmt.Sprintf("%s receives from Postgres %v late, and then nothing", m.name, late), claims: claimsOf(m), hold: 2 * fleet.Lease,
		inflict: func(ctx context.Context) error {
			err := m.postgres.Set(slowToAnswer(late))
			fleet.Pause(ctx, long)
			r.renewal(ctx, m)
			fleet.Pause(ctx, 7*late/4) // the second question of the poll was sent, and is not answered yet
			last := proxy.Rules{Up: proxy.Flow{Hang: true}, Down: proxy.Flow{Delay: late}}
			return errors.Join(err, m.postgres.Set(last), m.redis.Set(hung))
		},
		heal: mend(m),
	}
}

// edgeLeavesSlowly stops an edge in order, which from then on hears from Postgres late and from Redis nothing. When its row is
// gone and it does not know it yet, control does not wait for it.
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

// edgeComesBackSlowly has an edge start again without Redis and far from Postgres. It has no row then: control does not wait for it, and
// sends it no hint about what it loads before its first poll.
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

// edgeSlowWithoutRedis lets an edge fill its cache slowly and hear of changes by its poll alone.
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

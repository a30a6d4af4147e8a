package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"deeplink/bench/proxy"
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

// cutOff leaves an edge with its lease and nothing else. Whether that ends in time is seen only now.
func cutOff(m *member, random *rand.Rand) attack {
	return attack{
		what: m.name + " is cut off from Postgres and Redis", claims: claimsOf(m), hold: between(random, 3*lease/2, 3*lease),
		inflict: func(context.Context) error { return errors.Join(m.redis.Set(hung), m.postgres.Set(hung)) },
		heal:    mend(m),
	}
}

// edgeSlowThenCutOff lets the last polls of an edge come home late before it is cut off: a lease that counted from the reply
// would be too long by as much.
func edgeSlowThenCutOff(r *rig, random *rand.Rand) attack {
	m := victim(r, random)
	late, long := between(random, 300*time.Millisecond, 420*time.Millisecond), between(random, lease, 2*lease)
	return attack{
		what: fmt.Sprintf("%s hears from Postgres %v late and not from Redis, then is cut off", m.name, late), claims: claimsOf(m),
		hold: 2 * lease,
		inflict: func(ctx context.Context) error {
			err := errors.Join(m.redis.Set(hung), m.postgres.Set(proxy.Rules{Down: proxy.Flow{Delay: late}}))
			pause(ctx, long)
			return errors.Join(err, m.postgres.Set(hung))
		},
		heal: mend(m),
	}
}

// edgeLeavesSlowly stops an edge in order while it hears from Postgres late and not from Redis. When its row is gone and it does
// not know it yet, nobody waits for it.
func edgeLeavesSlowly(r *rig, random *rand.Rand) attack {
	m := victim(r, random)
	late, long := between(random, 200*time.Millisecond, 400*time.Millisecond), between(random, lease/2, lease)
	return attack{
		what: fmt.Sprintf("%s leaves while it hears from Postgres %v late and not from Redis", m.name, late), claims: claimsOf(m),
		hold: 300 * time.Millisecond,
		inflict: func(ctx context.Context) error {
			err := errors.Join(m.redis.Set(hung), m.postgres.Set(proxy.Rules{Down: proxy.Flow{Delay: late}}))
			pause(ctx, long)
			return errors.Join(err, m.stop(ctx))
		},
		heal: func(ctx context.Context) error { return errors.Join(mend(m)(ctx), m.launchAgain()) },
	}
}

// edgeSlowWithoutRedis lets an edge fill its cache slowly and hear of changes by its poll alone.
func edgeSlowWithoutRedis(r *rig, random *rand.Rand) attack {
	m := victim(r, random)
	late := between(random, 20*time.Millisecond, 150*time.Millisecond)
	return attack{
		what: fmt.Sprintf("%s hears from Postgres %v late and not from Redis", m.name, late), claims: claimsOf(m),
		hold: between(random, lease, 2*lease),
		inflict: func(context.Context) error {
			return errors.Join(m.redis.Set(hung), m.postgres.Set(proxy.Rules{Down: proxy.Flow{Delay: late}}))
		},
		heal: mend(m),
	}
}

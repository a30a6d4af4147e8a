package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"time"

	"deeplink/bench/prove/faults/proxy"
	"deeplink/bench/prove/fleet"
	"deeplink/shared/devservers"
)

// nemesis is a kind of fault. draw chooses the details.
type nemesis struct {
	name string
	kind kind
	draw func(r *rig, random *rand.Rand) attack
}

// kind says which part of the system a fault affects.
type kind string

const (
	// onProcess affects a process.
	onProcess kind = "process"
	// onLink breaks a link in one of the modes.
	onLink kind = "link"
	// ambush combines several of these, in an order.
	ambush kind = "ambush"
)

// attack is one fault with all choices made.
type attack struct {
	// its description in stories, without its duration
	what string
	// claims are the resources that it needs exclusively: two attacks with a common claim never run together.
	claims []string
	// hold is its duration.
	hold time.Duration
	// inflict starts it. heal ends it; it is called in any case and leaves nothing behind. Neither makes random choices: concurrent attacks
	// would share a source of random numbers.
	inflict, heal func(ctx context.Context) error
}

func nothing(context.Context) error { return nil }

// spans are how long processes are stopped: less than a lease, more than one, and longer than any timeout.
var spans = []time.Duration{fleet.Lease / 2, 2 * fleet.Lease, 10 * time.Second}

// nemeses returns all kinds of faults.
func nemeses() []nemesis {
	all := []nemesis{
		{"edge stopped", onProcess, func(r *rig, random *rand.Rand) attack { return stopped(pick(random, r.edges), pick(random, spans)) }},
		{"control stopped", onProcess, func(r *rig, random *rand.Rand) attack { return stopped(pick(random, r.controls), pick(random, spans)) }},
		{"edge killed", onProcess, func(r *rig, random *rand.Rand) attack { return killed(pick(random, r.edges), random) }},
		{"control killed", onProcess, func(r *rig, random *rand.Rand) attack { return killed(pick(random, r.controls), random) }},
		{"controls killed one after the other", onProcess, killedOften},
		{"edges restarted", onProcess, func(r *rig, _ *rand.Rand) attack { return restarted("edges", r.edges) }},
		{"controls restarted", onProcess, func(r *rig, _ *rand.Rand) attack { return restarted("controls", r.controls) }},
		{"Redis stopped", onProcess, redisStopped},
		{"Redis restarted empty", onProcess, redisRestarted},
		{"Redis failed over", onProcess, redisFailedOver},
		{"Redis flushed", onProcess, redisFlushed},
		{"Postgres stopped", onProcess, postgresStopped},
		{"Postgres crashed", onProcess, postgresCrashed},
		{"backends terminated", onProcess, backendsTerminated},
		{"edge cut off", ambush, func(r *rig, random *rand.Rand) attack { return cutOff(pick(random, r.edges[:len(r.edges)-1]), random) }},
		{"edge without S cut off", ambush, func(r *rig, random *rand.Rand) attack { return cutOff(r.withoutS(), random) }},
		{"edge slow and then cut off", ambush, edgeSlowThenCutOff},
		{"edge leaves slowly", ambush, edgeLeavesSlowly},
		{"edge comes back slowly", ambush, edgeComesBackSlowly},
		{"edge slow without Redis", ambush, edgeSlowWithoutRedis},
	}
	for _, l := range links {
		for _, m := range modes {
			name := l.name + " " + m.name
			all = append(all, nemesis{name, onLink, func(r *rig, random *rand.Rand) attack {
				return linkBroken(l.from(r), l.link, m.rules(random), name, random)
			}})
		}
	}
	return all
}

// named returns the nemeses with these names, all if there are no names. An unknown name is an error.
func named(names []string) ([]nemesis, error) {
	all := nemeses()
	if len(names) == 0 {
		return all, nil
	}
	var found []nemesis
	for _, name := range names {
		i := slices.IndexFunc(all, func(n nemesis) bool { return n.name == name })
		if i < 0 {
			return nil, fmt.Errorf("unknown fault %q", name)
		}
		found = append(found, all[i])
	}
	return found, nil
}

func pick[T any](random *rand.Rand, from []T) T { return from[random.IntN(len(from))] }

func stopped(m *member, span time.Duration) attack {
	return attack{
		what: m.name + " stopped", claims: []string{m.name}, hold: span,
		inflict: func(context.Context) error { return m.signal(syscall.SIGSTOP) },
		heal:    func(context.Context) error { return m.signal(syscall.SIGCONT) },
	}
}

func killed(m *member, random *rand.Rand) attack {
	return attack{
		what: m.name + " killed", claims: []string{m.name}, hold: fleet.Between(random, 0, 2*fleet.Lease),
		inflict: func(context.Context) error { return m.kill() },
		heal:    func(context.Context) error { return m.launchAgain() },
	}
}

// killedOften kills each control several times, so that some die between a commit and its hint.
func killedOften(r *rig, random *rand.Rand) attack {
	var lives []time.Duration
	for range 2 * len(r.controls) {
		lives = append(lives, fleet.Between(random, 50*time.Millisecond, 300*time.Millisecond))
	}
	return attack{
		what: "controls killed again and again", claims: names(r.controls), hold: time.Second,
		inflict: func(ctx context.Context) error {
			for i, life := range lives {
				m := r.controls[i%len(r.controls)]
				if err := m.kill(); err != nil {
					return err
				}
				if err := m.start(ctx); err != nil {
					return err
				}
				fleet.Pause(ctx, life)
			}
			return nil
		},
		heal: nothing,
	}
}

func names(members []*member) (all []string) {
	for _, m := range members {
		all = append(all, m.name)
	}
	return all
}

// restarted restarts members one after the other, in order, as a new release does.
func restarted(what string, members []*member) attack {
	return attack{
		what: what + " restarted one after the other", claims: names(members), hold: 100 * time.Millisecond,
		inflict: func(ctx context.Context) error {
			for _, m := range members {
				if err := m.stop(ctx); err != nil {
					return err
				}
				if err := m.start(ctx); err != nil {
					return err
				}
			}
			return nil
		},
		heal: nothing,
	}
}

const redisClaim, postgresClaim = "redis", "postgres"

func redisStopped(r *rig, random *rand.Rand) attack {
	var primary *devservers.Redis
	return attack{
		what: "Redis stopped", claims: []string{redisClaim}, hold: pick(random, spans),
		inflict: func(context.Context) error {
			primary, _ = r.primary()
			return primary.Pause()
		},
		heal: func(context.Context) error { return primary.Resume() },
	}
}

func redisRestarted(r *rig, random *rand.Rand) attack {
	var primary, replica *devservers.Redis
	return attack{
		what: "Redis killed and restarted empty", claims: []string{redisClaim}, hold: fleet.Between(random, 0, 2*fleet.Lease),
		inflict: func(context.Context) error {
			primary, replica = r.primary()
			return primary.Kill()
		},
		heal: func(ctx context.Context) error {
			return errors.Join(primary.Start(ctx), replicate(ctx, replica, primary))
		},
	}
}

func redisFailedOver(r *rig, random *rand.Rand) attack {
	hung := random.IntN(2) == 0
	lossy := fleet.Between(random, 100*time.Millisecond, time.Second)
	return attack{
		what: fmt.Sprintf("Redis fails over, losing the writes of %v; the old primary hangs: %t", lossy, hung), claims: []string{redisClaim},
		hold:    fleet.Between(random, fleet.Lease/2, 2*fleet.Lease),
		inflict: func(ctx context.Context) error { return r.failOver(ctx, lossy, hung) },
		heal:    r.rejoin,
	}
}

func redisFlushed(r *rig, _ *rand.Rand) attack {
	return attack{
		what: "Redis flushed", claims: []string{redisClaim}, hold: 300 * time.Millisecond, inflict: r.flush, heal: nothing,
	}
}

func postgresStopped(r *rig, random *rand.Rand) attack {
	return attack{
		what: "Postgres stopped", claims: []string{postgresClaim}, hold: pick(random, spans),
		inflict: func(context.Context) error { return r.Postgres.Pause() },
		heal:    func(context.Context) error { return r.Postgres.Resume() },
	}
}

func postgresCrashed(r *rig, random *rand.Rand) attack {
	return attack{
		what: "Postgres crashes", claims: []string{postgresClaim}, hold: fleet.Between(random, 0, 2*fleet.Lease),
		inflict: func(context.Context) error { return r.Postgres.StopImmediate() },
		heal:    func(ctx context.Context) error { return r.Postgres.Start(ctx) },
	}
}

func backendsTerminated(r *rig, _ *rand.Rand) attack {
	return attack{
		what: "all backends terminated", claims: []string{postgresClaim}, hold: 500 * time.Millisecond,
		inflict: r.terminateBackends, heal: nothing,
	}
}

// links are the links that can break, by their two ends.
var links = []struct {
	name string
	from func(r *rig) []*member
	link func(m *member) *proxy.Proxy
}{
	{"edge to Postgres", (*rig).atEdges, toPostgres},
	{"edge to Redis", (*rig).atEdges, toRedis},
	{"control to Postgres", (*rig).atControls, toPostgres},
	{"control to Redis", (*rig).atControls, toRedis},
}

func (r *rig) atEdges() []*member    { return r.edges }
func (r *rig) atControls() []*member { return append(slices.Clone(r.controls), r.operator) }

func toPostgres(m *member) *proxy.Proxy { return m.postgres }
func toRedis(m *member) *proxy.Proxy    { return m.redis }

// modes are the ways in which a link can break.
var modes = []struct {
	name  string
	rules func(random *rand.Rand) proxy.Rules
}{
	{"slow", func(random *rand.Rand) proxy.Rules {
		return both(proxy.Flow{Delay: fleet.Between(random, 5*time.Millisecond, 120*time.Millisecond)})
	}},
	{"slow to answer", func(random *rand.Rand) proxy.Rules {
		return slowToAnswer(fleet.Between(random, 10*time.Millisecond, 200*time.Millisecond))
	}},
	{"hung", func(*rand.Rand) proxy.Rules { return both(proxy.Flow{Hang: true}) }},
	{"hung on the way there", func(*rand.Rand) proxy.Rules { return proxy.Rules{Up: proxy.Flow{Hang: true}} }},
	{"hung on the way back", func(*rand.Rand) proxy.Rules { return proxy.Rules{Down: proxy.Flow{Hang: true}} }},
	{"cut after some bytes", func(random *rand.Rand) proxy.Rules {
		return proxy.Rules{Up: proxy.Flow{CutAfter: 1 + random.Int64N(4000)}, Down: proxy.Flow{CutAfter: 1 + random.Int64N(8000)}}
	}},
	{"refused", func(*rand.Rand) proxy.Rules { return proxy.Rules{Refuse: true} }},
}

// linkBroken breaks the link of one member, or of all members of a kind.
func linkBroken(members []*member, link func(*member) *proxy.Proxy, rules proxy.Rules, name string, random *rand.Rand) attack {
	who := "all"
	if random.IntN(3) > 0 {
		members = []*member{pick(random, members)}
		who = members[0].name
	}
	a := attack{what: name + ": " + who, hold: fleet.Between(random, fleet.Lease/2, 5*fleet.Lease/2)}
	for _, m := range members {
		a.claims = append(a.claims, link(m).Addr())
	}
	set := func(rules proxy.Rules) func(context.Context) error {
		return func(context.Context) error {
			var errs []error
			for _, m := range members {
				errs = append(errs, link(m).Set(rules))
			}
			return errors.Join(errs...)
		}
	}
	a.inflict, a.heal = set(rules), set(proxy.Rules{})
	return a
}

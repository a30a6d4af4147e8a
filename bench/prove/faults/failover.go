package faults

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"deeplink/bench/prove/proof"

	"github.com/jackc/pgx/v5"

	"deeplink/bench/prove/fleet"
	"deeplink/shared/devservers"
)

// FailoverCommand kills the primaries of stores that fail over, under load, and checks every response.
type FailoverCommand struct {
	Seed         uint64        `help:"Seed of everything random. 0: a new one."`
	Rounds       int           `help:"How often each fault is injected." default:"3"`
	Only         string        `help:"Stores that fail over: redis, postgres or both." enum:"redis,postgres,both" default:"both"`
	StaleIfError time.Duration `help:"EDGE_STALE_IF_ERROR of all edges but the last, which has 0." default:"10s"`
}

// Run prints a report for each store. A violation is an error.
func (c FailoverCommand) Run(ctx context.Context, out *proof.Output) error {
	if c.Seed == 0 {
		c.Seed = rand.Uint64()
	}
	bin, err := fleet.Build(ctx)
	if err != nil {
		return err
	}
	defer os.RemoveAll(bin)
	report, err := c.run(ctx, bin, out.Log)
	if report == nil {
		return err
	}
	report.markdown(out)
	return errors.Join(err, report.wrong())
}

// A run with fewer reads or changes proves nothing.
const leastReads, leastRevocations = 10_000, 100

// run starts a rig and injects each fault in turn. The report is nil if the run did not start.
func (c FailoverCommand) run(ctx context.Context, bin string, log io.Writer) (*report, error) {
	on := new(failingOver)
	r, err := openRigOn(ctx, bin, c.StaleIfError, log, on)
	if err != nil {
		return nil, err
	}
	load := shortLoad
	load.oneByOne, load.rounds, load.faults = false, c.Rounds, nil
	load.reads, load.revocations = leastReads, leastRevocations
	if c.Only != "postgres" {
		load.faults = on.redisServers.nemeses()
	}
	if c.Only != "redis" {
		load.faults = append(load.faults, on.postgresServers.nemeses()...)
	}
	run := newRun(r, load, c.Seed)
	err = run.do(ctx)
	err = errors.Join(err, r.close(context.WithoutCancel(ctx)))
	return newReport(run), err
}

// failingOver are stores with a spare server each. Members know all servers, and reach them without proxies.
type failingOver struct {
	redisServers    underSentinels
	postgresServers withStandby
}

func (f *failingOver) start(ctx context.Context, r *rig) error {
	if err := f.redisServers.start(ctx, filepath.Join(r.dir, "sentinels")); err != nil {
		return err
	}
	return f.postgresServers.start(ctx, r.Postgres)
}

func (f *failingOver) redis(*member) string { return f.redisServers.URL() }

func (f *failingOver) database(address string, _ *member) string {
	u, err := url.Parse(address)
	if err != nil {
		panic(err) // the stack created it
	}
	u.Host = f.postgresServers.servers[0].Addr() + "," + f.postgresServers.servers[1].Addr()
	return u.String() + "&target_session_attrs=read-write"
}

func (f *failingOver) close() (err error) {
	if f.redisServers.Sentinels != nil {
		err = f.redisServers.Close()
	}
	if standby := f.postgresServers.servers[1]; standby != nil {
		err = errors.Join(err, standby.StopImmediate())
	}
	return err
}

// underSentinels is a Redis and its replica, one of which the Sentinels promote to primary.
type underSentinels struct {
	*devservers.Sentinels
	primary int
}

// sentinelsWait is how long a Redis must be silent before Sentinels consider it down.
const sentinelsWait = time.Second

func (u *underSentinels) start(ctx context.Context, dir string) (err error) {
	u.Sentinels, err = devservers.StartSentinels(ctx, dir, sentinelsWait)
	return err
}

func (u *underSentinels) nemeses() []nemesis {
	return []nemesis{
		{"the primary of Redis killed", onProcess, func(_ *rig, random *rand.Rand) attack { return u.failOver((*devservers.Redis).Kill, random) }},
		{"the primary of Redis hung", onProcess, func(_ *rig, random *rand.Rand) attack { return u.failOver((*devservers.Redis).Pause, random) }},
	}
}

// failOver makes the Sentinels promote the replica. The former primary restarts empty.
func (u *underSentinels) failOver(end func(*devservers.Redis) error, random *rand.Rand) attack {
	var former *devservers.Redis
	return attack{
		what: "the primary of Redis goes", claims: []string{redisClaim}, hold: fleet.Between(random, fleet.Lease/2, 2*fleet.Lease),
		inflict: func(ctx context.Context) error {
			former = u.Servers[u.primary]
			u.primary = 1 - u.primary
			return errors.Join(end(former), u.Promoted(ctx, u.Servers[u.primary]))
		},
		heal: func(ctx context.Context) error {
			return errors.Join(former.Kill(), u.Rejoin(ctx, former, u.Servers[u.primary]))
		},
	}
}

// withStandby is a Postgres with a synchronous standby.
type withStandby struct {
	servers [2]*devservers.Postgres // the first one started as the primary
	primary int
}

// standbyName is the application_name of the standby.
const standbyName = "standby"

func (w *withStandby) start(ctx context.Context, primary *devservers.Postgres) (err error) {
	w.servers[0] = primary
	dir := filepath.Join(primary.Dir, "standby")
	if err := primary.Backup(ctx, dir, standbyName); err != nil {
		return err
	}
	if w.servers[1], err = devservers.StartPostgres(ctx, devservers.PostgresOptions{Dir: dir, Durable: true}); err != nil {
		return err
	}
	return w.wait(ctx)
}

// wait makes commits of the primary wait for the standby, and returns once they do.
func (w *withStandby) wait(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, w.servers[w.primary].URL())
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	for _, statement := range []string{"alter system set synchronous_standby_names = '" + standbyName + "'", "select pg_reload_conf()"} {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return err
		}
	}
	for {
		var synchronous int
		err := conn.QueryRow(ctx, "select count(*) from pg_stat_replication where sync_state = 'sync' and state = 'streaming'").Scan(&synchronous)
		if err != nil || synchronous == 1 {
			return err
		}
		if !fleet.Pause(ctx, 50*time.Millisecond) {
			return ctx.Err()
		}
	}
}

func (w *withStandby) nemeses() []nemesis {
	return []nemesis{{"the primary of Postgres killed, the standby promoted", onProcess, func(_ *rig, random *rand.Rand) attack { return w.failOver(random) }}}
}

// failOver promotes the standby some time after the primary was killed. The former primary becomes the standby.
func (w *withStandby) failOver(random *rand.Rand) attack {
	noticed := fleet.Between(random, 100*time.Millisecond, 2*fleet.Lease)
	var former *devservers.Postgres
	return attack{
		what:   fmt.Sprintf("the primary of Postgres is killed, and the standby promoted after %v", noticed),
		claims: []string{postgresClaim}, hold: fleet.Between(random, fleet.Lease/2, 2*fleet.Lease),
		inflict: func(ctx context.Context) error {
			former = w.servers[w.primary]
			w.primary = 1 - w.primary
			if err := former.Kill(); err != nil {
				return err
			}
			fleet.Pause(ctx, noticed)
			return w.servers[w.primary].Promote(ctx)
		},
		heal: func(ctx context.Context) error {
			if err := former.Follow(ctx, w.servers[w.primary], standbyName); err != nil {
				return err
			}
			return w.wait(ctx)
		},
	}
}

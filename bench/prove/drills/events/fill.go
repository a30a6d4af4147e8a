package events

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"time"

	"deeplink/bench/progress"
	"deeplink/bench/prove/proof"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"deeplink/bench/prove/figures"
	"deeplink/bench/prove/fleet"
	"deeplink/bench/result"
)

// fillCommand stores many events as fast as control accepts them, and exports them.
type fillCommand struct {
	Events  int     `help:"Number of events." default:"10000000"`
	Clients int     `help:"Number of phones, each with one batch of 100 in progress; at most 60." default:"32"`
	Repeat  float64 `help:"Share of the batches that are sent twice concurrently." default:"0.01"`
	Seed    uint64  `help:"Seed of the events. 0: a new one."`
}

// Validate implements kong's check of a command.
func (c fillCommand) Validate() error {
	if c.Events < stretches*fullBatch || c.Clients < 1 || c.Clients > 60 || c.Repeat < 0 || c.Repeat > 1 {
		return errors.New("--events must be at least 1000, --clients from 1 to 60, --repeat from 0 to 1")
	}
	return nil
}

// Run prints the rates and what was stored and exported. An exceeded bound is an error.
func (c fillCommand) Run(ctx context.Context, out *proof.Output) error {
	if c.Seed == 0 {
		c.Seed = rand.Uint64()
	}
	fmt.Fprintf(out, "seed %d\n", c.Seed)
	f, err := fleet.Launch(ctx, 2, 0, out.Log)
	if err != nil {
		return err
	}
	load := filling{events: c.Events, clients: c.Clients, repeat: c.Repeat, seed: c.Seed}
	report, err := load.run(ctx, f, bar(c.Events, "stored"), bar(c.Events, "exported"))
	if err := errors.Join(err, f.Close(context.WithoutCancel(ctx))); err != nil {
		return err
	}
	report.print(out)
	return figures.Unkept(report.findings())
}

// bar shows the progress on a terminal.
func bar(total int, what string) func(int) {
	b := progress.Bar(total, what, os.Stderr)
	return func(n int) { _ = b.Set(n) } // cosmetic
}

// fullBatch is how many events a phone may send in one request.
const fullBatch = 100

// filling is a set of phones that send one full batch after the other.
type filling struct {
	events, clients int
	repeat          float64 // share of the batches that are sent twice concurrently
	seed            uint64
}

// fillReport is the result.
type fillReport struct {
	filling
	orgKey    string
	keys      int
	paces     []pace
	latencies result.Latencies // of all events
	sum       idSum            // of the acknowledged events
	counted   stock
	// accepted is the sum over all responses.
	accepted, repeated int64
	// tenth covers the first tenth of the stored events.
	tenth, whole exported
	exportedSum  idSum
}

// stock is what Postgres holds.
type stock struct {
	events, distinct, ids int64
	eventBytes, idBytes   int64 // with indexes
}

// run works on a fleet whose controls all run. It calls the functions with the number of stored and exported events.
func (l filling) run(ctx context.Context, f *fleet.Fleet, storing, exporting func(int)) (*fillReport, error) {
	o, err := fleet.NewOrganization(ctx, f.OperatorCommand)
	if err != nil {
		return nil, err
	}
	owner, err := pgxpool.New(ctx, f.Owner)
	if err != nil {
		return nil, err
	}
	defer owner.Close()
	m := &meter{total: l.events, progress: storing, expenses: func() (expense, error) { return expenses(ctx, f, owner) }}
	keys := newKeyring(f, o)
	if err := l.store(ctx, f, o, keys, m); err != nil {
		return nil, err
	}
	r := &fillReport{filling: l, orgKey: o.OrgKey, keys: keys.made, sum: m.sum, accepted: m.accepted, repeated: m.repeated}
	r.paces, r.latencies = m.paces(), m.whole()
	return r, r.look(ctx, f, owner, m.stretches[0].ended, exporting)
}

// store runs the phones until all events are stored.
func (l filling) store(ctx context.Context, f *fleet.Fleet, o fleet.Organization, keys *keyring, m *meter) error {
	reporters := make([]*reporter, l.clients)
	var left atomic.Int64
	left.Store(int64(l.events))
	for i := range reporters {
		r := &reporter{
			device: fmt.Sprintf("phone-%d", i), repeat: l.repeat, random: rand.New(rand.NewPCG(l.seed, uint64(i))),
			keys: keys, meter: m, left: &left,
		}
		for j := range f.Controls {
			r.addrs = append(r.addrs, f.Controls[(i+j)%len(f.Controls)].Addr)
		}
		var err error
		if r.session, err = openSession(ctx, r.addrs[0], o, r.device); err != nil {
			return err
		}
		reporters[i] = r
	}
	if err := m.start(); err != nil {
		return err
	}
	group, working := errgroup.WithContext(ctx)
	for _, r := range reporters {
		group.Go(func() error { return r.work(working) })
	}
	return errors.Join(group.Wait(), m.err)
}

// reporter is a phone that sends batches as long as events are left.
type reporter struct {
	device, session string
	addrs           []string // the first one is tried first
	repeat          float64
	random          *rand.Rand
	keys            *keyring
	meter           *meter
	left            *atomic.Int64
}

func (r *reporter) work(ctx context.Context) error {
	for {
		n := min(fullBatch, fullBatch+int(r.left.Add(-fullBatch)))
		if n <= 0 {
			return nil
		}
		b := newBatch(r.random, r.device, r.session, n)
		var group errgroup.Group
		if r.random.Float64() < r.repeat {
			group.Go(func() error { return r.deliver(ctx, b, 1) })
		}
		if err := errors.Join(r.deliver(ctx, b, 0), group.Wait()); err != nil {
			return err
		}
		r.meter.done(b)
	}
}

// deliver sends a batch until it is acknowledged. An unexpected response is an error.
func (r *reporter) deliver(ctx context.Context, b batch, from int) error {
	for try := from; ; try++ {
		key, err := r.keys.take(ctx)
		if err != nil {
			return err
		}
		a := sendBatch(ctx, r.addrs[try%len(r.addrs)], key, b)
		r.meter.note(a)
		if a.acknowledged() {
			return nil
		}
		if a.odd != "" {
			return errors.New(a.odd)
		}
		if !fleet.Pause(ctx, 5*time.Millisecond) {
			return ctx.Err()
		}
	}
}

// read counts the events of one organization and returns the sizes of all events.
func (s *stock) read(ctx context.Context, owner *pgxpool.Pool, orgKey string) error {
	const sql = `
		with o as (select id from organizations where org_key = $1)
		select count(*), count(distinct e.id), (select count(*) from event_ids where organization_id = (select id from o)),
		       (select sum(pg_total_relation_size(inhrelid))::bigint from pg_inherits where inhparent = 'events'::regclass), pg_total_relation_size('event_ids')
		from events e where organization_id = (select id from o)`
	return owner.QueryRow(ctx, sql, orgKey).Scan(&s.events, &s.distinct, &s.ids, &s.eventBytes, &s.idBytes)
}

// look counts the stored events, then exports those stored until some moment, then all of them.
func (r *fillReport) look(ctx context.Context, f *fleet.Fleet, owner *pgxpool.Pool, until time.Time, exporting func(int)) (err error) {
	if err = r.counted.read(ctx, owner, r.orgKey); err != nil {
		return err
	}
	if r.tenth, err = export(ctx, f, r.orgKey, until, func(uuid.UUID) {}); err != nil {
		return err
	}
	n := 0
	r.exportedSum = idSum{}
	r.whole, err = export(ctx, f, r.orgKey, time.Time{}, func(id uuid.UUID) {
		r.exportedSum.add(id)
		if n++; n%1000 == 0 {
			exporting(n)
		}
	})
	exporting(n)
	return err
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"deeplink/bench/result"
)

// eventFillCommand stores many events as fast as they are taken, and exports them.
type eventFillCommand struct {
	Events  int     `help:"How many." default:"10000000"`
	Clients int     `help:"Phones, each with one batch of 100 under way, 60 at most." default:"32"`
	Repeat  float64 `help:"Share of the batches that are sent twice at once." default:"0.01"`
	Seed    uint64  `help:"Seed of the events. 0: a new one."`
	JSON    string  `name:"json" help:"File for the result as JSON." type:"path"`
	Log     string  `help:"File for what the programs write." type:"path"`
}

// Validate implements kong's check of a command.
func (c eventFillCommand) Validate() error {
	if c.Events < parts*fullBatch || c.Clients < 1 || c.Clients > 60 || c.Repeat < 0 || c.Repeat > 1 {
		return errors.New("there must be a thousand events, 1 to 60 clients, and a share from 0 to 1")
	}
	return nil
}

// Run prints how fast it went, and what was stored and exported. A bound that was not kept is an error.
func (c eventFillCommand) Run(ctx context.Context) error {
	log, err := createLog(c.Log)
	if err != nil {
		return err
	}
	defer log.Close()
	if c.Seed == 0 {
		c.Seed = rand.Uint64()
	}
	fmt.Printf("seed %d\n", c.Seed)
	began := time.Now()
	f, err := launch(ctx, 2, 0, log)
	if err != nil {
		return err
	}
	load := filling{events: c.Events, clients: c.Clients, repeat: c.Repeat, seed: c.Seed}
	report, err := load.run(ctx, f, bar(c.Events, "stored"), bar(c.Events, "exported"))
	if err := errors.Join(err, f.close(context.WithoutCancel(ctx))); err != nil {
		return err
	}
	report.print(os.Stdout)
	if c.JSON != "" {
		if err := report.file(began).Write(c.JSON); err != nil {
			return err
		}
	}
	return unkept(report.findings())
}

// bar shows on a terminal how many there are.
func bar(total int, what string) func(int) {
	b := barOf(total, what, os.Stderr)
	return func(n int) { _ = b.Set(n) } // it is there to be looked at
}

// fullBatch is how many events a phone may report at once.
const fullBatch = 100

// filling is phones that report one full batch after the other.
type filling struct {
	events, clients int
	repeat          float64 // share of the batches that are sent twice at once
	seed            uint64
}

// fillReport is what came of it.
type fillReport struct {
	filling
	orgKey  string
	keys    int
	paces   []pace
	all     result.Latencies
	sum     idSum // of what was acknowledged
	counted stock
	// accepted is the sum of all answers.
	accepted, repeated int64
	// tenth is of what was stored first.
	tenth, whole exported
	exportedSum  idSum
}

// stock is what Postgres holds.
type stock struct {
	events, distinct, ids int64
	eventBytes, idBytes   int64 // with indexes
}

// run works on a fleet whose controls all run. The functions are called with how many events are stored and exported.
func (l filling) run(ctx context.Context, f *fleet, storing, exporting func(int)) (*fillReport, error) {
	o, err := newOrganization(ctx, f.operate)
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
	r := &fillReport{filling: l, orgKey: o.orgKey, keys: keys.made, sum: m.sum, accepted: m.accepted, repeated: m.repeated}
	if r.paces, err = m.paces(); err != nil {
		return nil, err
	}
	if r.all, err = m.whole(); err != nil {
		return nil, err
	}
	return r, r.look(ctx, f, owner, m.parts[0].ended, exporting)
}

// store has the phones work until all events are stored.
func (l filling) store(ctx context.Context, f *fleet, o organization, keys *keyring, m *meter) error {
	reporters := make([]*reporter, l.clients)
	var left atomic.Int64
	left.Store(int64(l.events))
	for i := range reporters {
		r := &reporter{
			device: fmt.Sprintf("phone-%d", i), repeat: l.repeat, random: rand.New(rand.NewPCG(l.seed, uint64(i))), keys: keys, meter: m, left: &left,
		}
		for j := range f.controls {
			r.addrs = append(r.addrs, f.controls[(i+j)%len(f.controls)].Addr)
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

// reporter is a phone that has as much to report as there is left.
type reporter struct {
	device, session string
	addrs           []string // the one to begin with first
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

// deliver sends a batch until it is acknowledged. An answer that must not be is an error.
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
		if !pause(ctx, 5*time.Millisecond) {
			return ctx.Err()
		}
	}
}

// read counts what there is of one organization, and sizes of all.
func (s *stock) read(ctx context.Context, owner *pgxpool.Pool, orgKey string) error {
	const sql = `
		with o as (select id from organizations where org_key = $1)
		select count(*), count(distinct e.id), (select count(*) from event_ids where organization_id = (select id from o)),
		       (select sum(pg_total_relation_size(inhrelid))::bigint from pg_inherits where inhparent = 'events'::regclass), pg_total_relation_size('event_ids')
		from events e where organization_id = (select id from o)`
	return owner.QueryRow(ctx, sql, orgKey).Scan(&s.events, &s.distinct, &s.ids, &s.eventBytes, &s.idBytes)
}

// look counts what is stored, and exports what was stored until a moment and then all of it.
func (r *fillReport) look(ctx context.Context, f *fleet, owner *pgxpool.Pool, until time.Time, exporting func(int)) (err error) {
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

// The rate must not fall by more than a fifth, and an export of ten times as much may take a quarter more memory: that much the
// collector may be late.
const (
	leastOfFirst = 0.8
	mostOfTenth  = 1.25
)

// findings are the promises.
func (r *fillReport) findings() []finding {
	first, last := r.paces[0].rate(), r.paces[len(r.paces)-1].rate()
	unanswered := int64(0)
	for _, p := range r.paces {
		unanswered += p.Requests - p.Answers
	}
	wanted := int64(r.events)
	same := func(what string, n int64) finding {
		return counted(what, fmt.Sprint(n), fmt.Sprint(wanted), n == wanted)
	}
	rate := counted("events a second, the last tenth to the first", fmt.Sprintf("%.0f : %.0f = %.2f", last, first, last/first), fmt.Sprintf("≥ %.2f", leastOfFirst), last/first >= leastOfFirst)
	worked := func(p pace) float64 { return p.controlTime() + p.postgresTime() }
	before, after := worked(r.paces[0]), worked(r.paces[len(r.paces)-1])
	work := counted("CPU µs an event, the last tenth to the first", fmt.Sprintf("%.1f : %.1f = %.2f", after, before, after/before), fmt.Sprintf("≤ %.2f", 1/leastOfFirst), leastOfFirst*after <= before)
	memory := counted("peak memory of the export of all, to that of a tenth", fmt.Sprintf("%s : %s", megabytes(r.whole.Peak), megabytes(r.tenth.Peak)),
		fmt.Sprintf("≤ %.2f", mostOfTenth), float64(r.whole.Peak) <= mostOfTenth*float64(r.tenth.Peak))
	rate.timed, work.timed, memory.timed = true, true, true
	return []finding{
		rate,
		work,
		same("events in the table", r.counted.events),
		same("events in the table, each once", r.counted.distinct),
		same("ids remembered", r.counted.ids),
		counted(fmt.Sprintf("told accepted, with %d unanswered", unanswered), fmt.Sprint(r.accepted), fmt.Sprint(wanted), r.accepted == wanted || r.accepted < wanted && unanswered > 0),
		same("lines of the export", r.whole.Lines),
		counted("ids of the export are those acknowledged", fmt.Sprint(r.exportedSum == r.sum), "true", r.exportedSum == r.sum),
		memory,
	}
}

func megabytes(bytes int64) string { return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20)) }

// print writes tables.
func (r *fillReport) print(out io.Writer) {
	fmt.Fprintf(out, "%d events in batches of %d by %d phones, %.1f %% of the batches twice at once; %d keys\n\n", r.events, fullBatch, r.clients, 100*r.repeat, r.keys)
	fmt.Fprint(out, "| tenth | events/s | p50 ms | p99 ms | CPU µs an event: control | Postgres | log bytes an event | answers by status | unanswered |\n|--:|--:|--:|--:|--:|--:|--:|---|--:|\n")
	seconds := 0.0
	for i, p := range r.paces {
		seconds += p.Seconds
		fmt.Fprintf(out, "| %d | %.0f | %.1f | %.1f | %.1f | %.1f | %.0f | %v | %d |\n",
			i+1, p.rate(), p.Latencies.P50/1000, p.Latencies.P99/1000, p.controlTime(), p.postgresTime(), p.logged(), p.Statuses, p.Requests-p.Answers)
	}
	fmt.Fprintf(out, "| all | %.0f | %.1f | %.1f | | | | | |\n\n", float64(r.events)/seconds, r.all.P50/1000, r.all.P99/1000)
	fmt.Fprintf(out, "%.1f s; duplicates told: %d; %s of events, %s of ids, both with their indexes\n\n", seconds, r.repeated, megabytes(r.counted.eventBytes), megabytes(r.counted.idBytes))
	fmt.Fprint(out, "| export | lines | MB | s | lines/s | peak memory |\n|---|--:|--:|--:|--:|--:|\n")
	for _, e := range []struct {
		what string
		exported
	}{{"the first tenth", r.tenth}, {"all", r.whole}} {
		fmt.Fprintf(out, "| %s | %d | %.0f | %.1f | %.0f | %s |\n", e.what, e.Lines, float64(e.Bytes)/1e6, e.Took.Seconds(), float64(e.Lines)/e.Took.Seconds(), megabytes(e.Peak))
	}
	printFindings(out, r.findings())
}

// file has a round for each tenth.
func (r *fillReport) file(began time.Time) *result.File {
	var rounds []result.Round
	for _, p := range r.paces {
		rounds = append(rounds, p.Round)
	}
	return file(began, fmt.Sprintf("store %d events in batches of %d", r.events, fullBatch), rounds)
}

package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"deeplink/bench/prove/faults/history"
	"deeplink/bench/prove/fleet"
)

// workload is the load alongside the faults.
type workload struct {
	links                  int // writers of links; each other kind of writer has a quarter as many, and at least one
	readers, reserved      int // connections per edge
	batch                  int // keys per batch of a reader
	readEvery, changeEvery time.Duration
	revocations, reads     int64         // targets to reach before the run may end
	atLeast                time.Duration // minimum duration of the run
	faults                 []nemesis     // the faults to choose from
	oneByOne               bool          // each of them once, instead of random faults
	rounds                 int           // if not 0: all of them in turn this many times instead
	untilFound             bool          // end at the first finding
}

// run is one run of the bench on one rig.
type run struct {
	rig      *rig
	load     workload
	seed     uint64
	recorder *history.Recorder
	board    *board
	tally    *tally
	writers  int // started waves

	took time.Duration // set at the end

	mu        sync.Mutex
	surprises map[string]int // responses that no fault explains
	during    []string       // the faults that were active at the finding that ended the run
}

func newRun(r *rig, l workload, seed uint64) *run {
	return &run{
		rig: r, load: l, seed: seed, board: newBoard(len(r.edges)), tally: newTally(), surprises: make(map[string]int),
		recorder: history.New(history.Terms{Lease: fleet.Lease, StaleIfError: r.stale}),
	}
}

// random returns a new source of random numbers for each of its users, all derived from the seed.
func (r *run) random(who uint64) *rand.Rand { return rand.New(rand.NewPCG(r.seed, who)) }

// mostSurprises bounds how many different ones are kept.
const mostSurprises = 20

func (r *run) surprise(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.surprises[what]; known || len(r.surprises) < mostSurprises {
		r.surprises[what]++
	}
}

// errCrashed means that a process ended although no fault had ended it.
var errCrashed = errors.New("ended unexpectedly")

// do runs writers, readers and faults, then heals everything, waits until the last changes are effective, and compares the database with
// the acknowledged changes. It returns errors of the bench and processes that ended unexpectedly; the recorder holds wrong responses.
func (r *run) do(ctx context.Context) error {
	reading, stopReading := context.WithCancel(ctx)
	defer stopReading()
	writing, stopWriting := context.WithCancel(ctx)
	defer stopWriting()
	var readers, writers sync.WaitGroup
	r.startReaders(reading, &readers)
	r.startWriters(writing, &writers)

	var watching sync.WaitGroup
	defer watching.Wait()
	looking, stopLooking := context.WithCancel(ctx)
	defer stopLooking()
	if r.load.untilFound {
		watching.Go(func() { r.untilFound(looking, stopLooking) })
	}
	err := r.attack(looking)
	stopWriting()
	writers.Wait()
	// By now every pending change and every change by hand must be visible, so the readers check once more.
	fleet.Pause(looking, fleet.Lease+r.rig.stale[0]+fleet.Lease/2)
	stopReading()
	readers.Wait()
	r.took = r.recorder.Now()
	if err == nil && ctx.Err() == nil {
		err = r.checkDatabase(ctx)
	}
	return errors.Join(err, ctx.Err())
}

func (r *run) startReaders(ctx context.Context, readers *sync.WaitGroup) {
	for edge := range r.rig.edges {
		for i := range r.load.readers + r.load.reserved {
			reader := &reader{run: r, edge: edge, every: r.load.readEvery, batch: r.load.batch, reserved: i >= r.load.readers}
			readers.Go(func() { reader.read(ctx) })
		}
	}
}

func (r *run) startWriters(ctx context.Context, writers *sync.WaitGroup) {
	writer := func(kind string, i int) writer {
		r.writers++
		return writer{run: r, random: r.random(uint64(r.writers)), name: fmt.Sprintf("%s-%d", kind, i)}
	}
	for i := range r.load.links {
		w := &linkWriters{writer("link", i), r.load.changeEvery}
		writers.Go(func() { w.work(ctx) })
	}
	for i := range max(1, r.load.links/4) {
		suspender, domains, hand := &suspender{writer("org", i)}, &domainWriter{writer("domain", i)}, &handWriter{writer: writer("hand", i)}
		writers.Go(func() { suspender.work(ctx) })
		writers.Go(func() { domains.work(ctx) })
		writers.Go(func() { hand.work(ctx) })
	}
}

// warmUp returns when every writer has a link to change, or has failed for so long that the attacks may as well start.
func (r *run) warmUp(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	for len(*r.board.subjects.Load()) < r.writers && fleet.Pause(ctx, 50*time.Millisecond) {
	}
}

// untilFound ends the run at the first finding.
func (r *run) untilFound(ctx context.Context, stop func()) {
	select {
	case <-r.recorder.Found():
		for _, row := range r.tally.now() {
			r.during = append(r.during, row.name)
		}
		stop()
	case <-ctx.Done():
	}
}

// attack injects faults until the targets are reached or ctx ends.
func (r *run) attack(ctx context.Context) error {
	r.warmUp(ctx)
	random := r.random(0)
	waves := endless(r.rig, random, r.load.faults)
	switch {
	case r.load.oneByOne:
		waves = eachOnce(r.rig, random, r.load.faults)
	case r.load.rounds > 0:
		waves = inTurn(r.rig, random, r.load.faults, r.load.rounds)
	}
	for wave := range waves {
		if ctx.Err() != nil || !r.load.oneByOne && r.load.rounds == 0 && r.enough() {
			return nil
		}
		if err := r.strike(ctx, wave.attacks); err != nil {
			return err
		}
		fleet.Pause(ctx, wave.pause)
	}
	if r.load.rounds > 0 {
		r.awaitEnough(ctx)
	}
	return nil
}

// awaitEnough continues without faults if the faults ended before the targets were reached.
func (r *run) awaitEnough(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for !r.enough() && fleet.Pause(ctx, 50*time.Millisecond) {
	}
}

// enough reports whether the targets are reached.
func (r *run) enough() bool {
	return r.recorder.Now() >= r.load.atLeast && r.recorder.Reads() >= r.load.reads && r.tally.all.revocations.Load() >= r.load.revocations
}

// strike injects faults at the same time and returns when they are healed.
func (r *run) strike(ctx context.Context, attacks []chosen) error {
	var rows []*row
	for _, c := range attacks {
		row := r.tally.fault(c.name)
		row.times.Add(1)
		rows = append(rows, row)
	}
	r.tally.set(rows)
	defer r.tally.set(nil)
	var group errgroup.Group
	for _, c := range attacks {
		group.Go(func() error { return r.strikeOne(ctx, c.attack) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for _, m := range r.rig.members() {
		if exit := m.crashed(); exit != "" {
			return fmt.Errorf("%s %w: %s", m.name, errCrashed, exit)
		}
	}
	return nil
}

// strikeOne also heals a partly injected fault, and also when ctx has ended.
func (r *run) strikeOne(ctx context.Context, a attack) error {
	r.recorder.Note(a.what)
	err := a.inflict(ctx)
	r.recorder.Note(fmt.Sprintf("for %v: %s", a.hold.Round(time.Millisecond), a.what))
	fleet.Pause(ctx, a.hold)
	err = errors.Join(err, a.heal(context.WithoutCancel(ctx)))
	r.recorder.Note("over: " + a.what)
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("%s: %w", a.what, err)
	}
	return nil
}

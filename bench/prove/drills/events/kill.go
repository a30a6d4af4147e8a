package events

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"deeplink/bench/prove/proof"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"deeplink/bench/prove/figures"
	"deeplink/bench/prove/fleet"
)

// killCommand kills controls while phones send events, and looks for every acknowledged event.
type killCommand struct {
	Duration time.Duration `help:"Length of the run." default:"60s"`
	Rate     int           `help:"Events per second, of all phones together." default:"500"`
	Clients  int           `help:"Number of phones." default:"50"`
	Seed     uint64        `help:"Seed of the kills and of the batches. 0: a new one."`
}

// Validate implements kong's check of a command.
func (c killCommand) Validate() error {
	if c.Rate < 1 || c.Clients < 1 || c.Duration <= 0 {
		return errors.New("--rate, --clients and --duration must be positive")
	}
	return nil
}

// Run prints what was acknowledged and what is stored. A broken promise is an error.
func (c killCommand) Run(ctx context.Context, out *proof.Output) error {
	if c.Seed == 0 {
		c.Seed = rand.Uint64()
	}
	fmt.Fprintf(out, "seed %d\n", c.Seed)
	f, err := fleet.Launch(ctx, 2, 0, out.Log)
	if err != nil {
		return err
	}
	load := killing{duration: c.Duration, rate: c.Rate, clients: c.Clients, seed: c.Seed, least: time.Second, most: 4 * time.Second}
	report, err := load.run(ctx, f)
	if err := errors.Join(err, f.Close(context.WithoutCancel(ctx))); err != nil {
		return err
	}
	report.print(out)
	return figures.Unkept(report.findings())
}

const (
	// meanBatch is the average size of a batch: sizes are 1 to twice as many less one.
	meanBatch = 5
	// batchesPerKey per second leaves half of the limit unused: a key may send 600 a minute.
	batchesPerKey = 5
	// lastPatience is how long batches are retried after all controls run again.
	lastPatience = 30 * time.Second
)

// killing is a set of phones that send at a fixed pace, whether or not responses arrive, while one of the controls is killed every least to
// most and restarted.
type killing struct {
	duration      time.Duration
	rate, clients int // events per second of all phones, and the number of phones
	seed          uint64
	least, most   time.Duration
}

// killReport is the result.
type killReport struct {
	killing
	phones []*phone
	kills  int
	ledger *ledger
	// stored is read from the table, printed by the operator's export
	stored, printed archive
}

// run works on a fleet whose controls all run, and leaves all of them running.
func (k killing) run(ctx context.Context, f *fleet.Fleet) (*killReport, error) {
	phones, err := k.enlist(ctx, f)
	if err != nil {
		return nil, err
	}
	report := &killReport{killing: k, phones: phones, ledger: newLedger()}
	working, stop := context.WithTimeout(ctx, k.duration)
	defer stop()
	delivering, giveUp := context.WithCancel(ctx)
	defer giveUp()
	var deliveries sync.WaitGroup
	for _, p := range phones {
		deliveries.Go(func() { p.work(working, delivering, &deliveries, report.ledger) })
	}
	report.kills, err = k.kill(working, f)
	stop()
	last := time.AfterFunc(lastPatience, giveUp)
	defer last.Stop()
	deliveries.Wait()
	if err = errors.Join(err, ctx.Err()); err != nil {
		return nil, err
	}
	return report, report.look(ctx, f)
}

// look reads back what is stored.
func (r *killReport) look(ctx context.Context, f *fleet.Fleet) (err error) {
	if r.stored, err = table(ctx, f); err != nil {
		return err
	}
	r.printed = make(archive)
	seen := make(map[string]bool)
	for _, p := range r.phones {
		if seen[p.OrgKey] {
			continue
		}
		seen[p.OrgKey] = true
		_, err := export(ctx, f, p.OrgKey, time.Time{}, func(id uuid.UUID) { r.printed[eventKey{p.OrgKey, id}]++ })
		if err != nil {
			return err
		}
	}
	return nil
}

// kill kills and restarts controls until ctx ends. All run when it returns.
func (k killing) kill(ctx context.Context, f *fleet.Fleet) (kills int, err error) {
	random := rand.New(rand.NewPCG(k.seed, 0))
	for fleet.Pause(ctx, fleet.Between(random, k.least, k.most)) {
		i := random.IntN(len(f.Controls))
		if err := f.Controls[i].Kill(); err != nil {
			return kills, err
		}
		kills++
		fleet.Pause(ctx, fleet.Between(random, 0, k.least))
		again, err := f.StartControl(context.WithoutCancel(ctx), f.Controls[i].Addr)
		if err != nil {
			return kills, err
		}
		f.Controls[i] = again
	}
	return kills, nil
}

// phone is a device with the app of an organization.
type phone struct {
	fleet.Organization
	device, session string
	addrs           []string
	every           time.Duration // between two batches
	random          *rand.Rand
}

// enlist creates the phones, and as many organizations as their rate limits require.
func (k killing) enlist(ctx context.Context, f *fleet.Fleet) ([]*phone, error) {
	var addrs []string
	for _, control := range f.Controls {
		addrs = append(addrs, control.Addr)
	}
	organizations := make([]fleet.Organization, k.rate/(meanBatch*batchesPerKey)+1)
	var group errgroup.Group
	group.SetLimit(4)
	for i := range organizations {
		group.Go(func() (err error) {
			organizations[i], err = fleet.NewOrganization(ctx, f.OperatorCommand)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	phones := make([]*phone, k.clients)
	for i := range phones {
		p := &phone{
			Organization: organizations[i%len(organizations)], device: fmt.Sprintf("phone-%d", i), addrs: addrs,
			every:  meanBatch * time.Second * time.Duration(k.clients) / time.Duration(k.rate),
			random: rand.New(rand.NewPCG(k.seed, uint64(i)+1)),
		}
		var err error
		if p.session, err = openSession(ctx, addrs[0], p.Organization, p.device); err != nil {
			return nil, err
		}
		phones[i] = p
	}
	return phones, nil
}

// work makes a batch whenever one is due until working ends, and delivers each until delivering ends.
func (p *phone) work(working, delivering context.Context, deliveries *sync.WaitGroup, l *ledger) {
	for due := time.Now().Add(fleet.Between(p.random, 0, p.every)); fleet.Pause(working, time.Until(due)); due = due.Add(p.every) {
		b := newBatch(p.random, p.device, p.session, 1+p.random.IntN(2*meanBatch-1))
		l.promise(b)
		from := p.random.IntN(len(p.addrs))
		deliveries.Go(func() { p.deliver(delivering, l, b, due, from) })
	}
}

// deliver sends a batch until it is acknowledged or ctx ends, to one control after the other, with growing pauses.
func (p *phone) deliver(ctx context.Context, l *ledger, b batch, due time.Time, from int) {
	const longest = time.Second
	for try, wait := from, 20*time.Millisecond; ; try, wait = try+1, min(2*wait, longest) {
		a := sendBatch(ctx, p.addrs[try%len(p.addrs)], p.ClientKey, b)
		l.note(p.OrgKey, b, due, a)
		if a.acknowledged() || !fleet.Pause(ctx, wait/2+rand.N(wait)) {
			return
		}
	}
}

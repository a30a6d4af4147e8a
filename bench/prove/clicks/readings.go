package clicks

import (
	"context"
	"fmt"
	"maps"
	"time"

	"deeplink/bench/prove/figures"
)

const (
	// readEvery is the interval in which figures are read, and watchedLinks the number of links whose figures are read.
	readEvery    = time.Second
	watchedLinks = 20
	// quarter is the interval of figures.
	quarter = 15 * time.Minute
)

// readings are figures about the time before asOf, each as it was first read.
type readings struct {
	reader *reader
	links  []string // ids; "" is the organization
	first  map[reading]figure
	reads  int
	// changed counts reads of a figure that was another one before, and what the first change was.
	changed int
	what    string
}

// reading is what a figure is of: a link, or the organization if it is empty, and the end of its interval.
type reading struct {
	link string
	to   time.Time
}

type figure struct {
	clicks, late int64
	byClass      map[string]int64
}

func newReadings(r *reader, links []string) *readings {
	return &readings{reader: r, links: append(links, ""), first: make(map[reading]figure)}
}

// run reads all figures again and again until ctx ends. A read that fails because processes are killed is left out.
func (r *readings) run(ctx context.Context) {
	tick := time.NewTicker(readEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		if asOf, err := r.reader.asOf(ctx); err == nil {
			for _, link := range r.links {
				_ = r.read(ctx, reading{link, asOf.Truncate(quarter)})
			}
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// again reads each figure once more.
func (r *readings) again(ctx context.Context) error {
	for of := range maps.Clone(r.first) {
		if err := r.read(ctx, of); err != nil {
			return err
		}
	}
	return nil
}

// asOf returns the time before which figures are final.
func (r *reader) asOf(ctx context.Context) (time.Time, error) {
	p, err := read[linkFigure](ctx, r, figuresPath, r.everything(r.from.Add(quarter)))
	return p.AsOf, err
}

func (r *readings) read(ctx context.Context, of reading) error {
	query := r.reader.everything(of.to)
	if of.link != "" {
		query.Set("linkId", of.link)
	}
	p, err := read[linkFigure](ctx, r.reader, figuresPath, query)
	if err != nil {
		return err
	}
	r.note(of, figure{p.Totals.Clicks, p.Totals.LateClicks, p.Totals.ByClass})
	return nil
}

// note compares a figure with its first reading. Only late clicks may be added to it.
func (r *readings) note(of reading, now figure) {
	r.reads++
	before, known := r.first[of]
	if !known {
		r.first[of] = now
		return
	}
	if before.clicks-before.late != now.clicks-now.late || before.late == now.late && !maps.Equal(before.byClass, now.byClass) {
		r.changed++
		if r.what == "" {
			r.what = fmt.Sprintf("; the first: %+v was %+v, and then %+v", of, before, now)
		}
	}
}

func (r *readings) findings() []figures.Finding {
	return []figures.Finding{figures.None(fmt.Sprintf("readings that differ from an earlier one of the same figure before asOf, of %d links and the organization (%d figures%s)",
		len(r.links)-1, len(r.first), r.what), r.changed, r.reads)}
}

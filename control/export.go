package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"deeplink/control/internal/store"
)

const (
	// exportPage is how many events are in memory at once: at most some megabytes, however many there are.
	exportPage = 1000
	// exportPatience is how long an export, which may take hours, waits for a database that is not available, such as one that starts
	// again; it asks every exportPause.
	exportPatience = 5 * time.Minute
	exportPause    = time.Second
)

type eventsExportCommand struct {
	Org    string `required:"" help:"Key of the organization."`
	Since  string `required:"" help:"Only events that arrived then or later: a time such as 2030-01-31T12:00:00Z, or a day (UTC)."`
	Until  string `help:"Only events that arrived before. A minute ago when it is not given: what arrived until then is there to be read. No later where exports follow each other."`
	Format string `default:"ndjson" enum:"ndjson" help:"ndjson: one JSON object on each line."`
}

// Run implements control events export: the events in the order in which they arrived, as they are read.
func (c *eventsExportCommand) Run(t *task) error {
	since, err := parseMoment("--since", c.Since)
	if err != nil {
		return err
	}
	pool, err := openPool(t.database, 1)
	if err != nil {
		return err
	}
	defer pool.Close()
	s := store.New(pool, "")
	ctx, cancel := context.WithTimeout(t.ctx, commandTimeout)
	defer cancel()
	until, err := c.end(ctx, s)
	if err != nil {
		return err
	}
	if since.After(until) {
		return fmt.Errorf("%w: --since must not be after --until, %s", errArgument, until.UTC().Format(time.RFC3339))
	}
	o, err := organization(ctx, s, c.Org)
	if err != nil {
		return err
	}
	for after, last := store.FirstEvent(since), false; !last; {
		var page []store.StoredEvent
		if page, after, err = readEvents(t.ctx, s, o.ID, after, until); err != nil {
			return err
		}
		if err := t.printLines(page); err != nil {
			return err
		}
		last = len(page) < exportPage
	}
	return nil
}

// end returns the time before which events are wanted.
func (c *eventsExportCommand) end(ctx context.Context, s *store.Store) (time.Time, error) {
	if c.Until == "" {
		return s.Settled(ctx)
	}
	return parseMoment("--until", c.Until)
}

// readEvents reads a page as Store.Events does, and tries again while the database is not available.
func readEvents(ctx context.Context, s *store.Store, orgID string, after store.EventCursor, until time.Time) ([]store.StoredEvent, store.EventCursor, error) {
	for began := time.Now(); ; {
		page, next, err := readEventsOnce(ctx, s, orgID, after, until)
		if !errors.Is(err, store.ErrUnavailable) || time.Since(began) > exportPatience {
			return page, next, err
		}
		select {
		case <-ctx.Done():
			return nil, after, err
		case <-time.After(exportPause):
		}
	}
}

func readEventsOnce(ctx context.Context, s *store.Store, orgID string, after store.EventCursor, until time.Time) ([]store.StoredEvent, store.EventCursor, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	return s.Events(ctx, orgID, after, until, exportPage)
}

// printLines prints a page, which has been read whole: whoever reads the output may take any time, and Postgres ends a statement that
// goes on for long.
func (t *task) printLines(page []store.StoredEvent) error {
	var lines bytes.Buffer
	encoder := json.NewEncoder(&lines)
	encoder.SetEscapeHTML(false)
	for i := range page {
		if err := encoder.Encode(&page[i]); err != nil {
			return err
		}
	}
	_, err := t.out.Write(lines.Bytes())
	return err
}

// parseMoment reads a time or a day.
func parseMoment(flag, s string) (time.Time, error) {
	if at, ok := parseInstant(s); ok {
		return at, nil
	}
	if day, err := time.Parse(time.DateOnly, s); err == nil {
		return day, nil
	}
	return time.Time{}, fmt.Errorf("%w: %s must be a time such as 2030-01-31T12:00:00Z, or a day", errArgument, flag)
}

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"deeplink/control/internal/store"
)

// exportPage is how many events are in memory at once: at most some megabytes, however many there are.
const exportPage = 1000

type eventsExportCommand struct {
	Org    string `required:"" help:"Key of the organization."`
	Since  string `required:"" help:"Only events that arrived then or later: a time such as 2030-01-31T12:00:00Z, or a day (UTC)."`
	Until  string `help:"Only events that arrived before. Now when it is not given. An event may take 15 seconds to be seen: where exports follow each other, end each a minute ago."`
	Format string `default:"ndjson" enum:"ndjson" help:"ndjson: one JSON object on each line."`
}

// Run implements control events export: the events in the order in which they arrived, as they are read.
func (c *eventsExportCommand) Run(t *task) error {
	since, err := parseMoment("--since", c.Since)
	if err != nil {
		return err
	}
	until := time.Now()
	if c.Until != "" {
		if until, err = parseMoment("--until", c.Until); err != nil {
			return err
		}
	}
	pool, err := openPool(t.database, 1)
	if err != nil {
		return err
	}
	defer pool.Close()
	s := store.New(pool, "")
	ctx, cancel := context.WithTimeout(t.ctx, commandTimeout)
	defer cancel()
	o, err := organization(ctx, s, c.Org)
	if err != nil {
		return err
	}
	for cursor, read := store.FirstEvent(since), exportPage; read == exportPage; {
		if cursor, read, err = exportEvents(t, s, o.ID, cursor, until); err != nil {
			return err
		}
	}
	return nil
}

// exportEvents prints one page. It is read before it is printed: whoever reads the output may take any time, and Postgres ends a statement
// that goes on for long.
func exportEvents(t *task, s *store.Store, orgID string, after store.EventCursor, until time.Time) (store.EventCursor, int, error) {
	ctx, cancel := context.WithTimeout(t.ctx, commandTimeout)
	defer cancel()
	var lines bytes.Buffer
	encoder := json.NewEncoder(&lines)
	encoder.SetEscapeHTML(false)
	cursor, read, err := s.Events(ctx, orgID, after, until, exportPage, func(e *store.StoredEvent) error { return encoder.Encode(e) })
	if err != nil {
		return after, 0, err
	}
	_, err = t.out.Write(lines.Bytes())
	return cursor, read, err
}

// parseMoment reads a time or a day.
func parseMoment(flag, s string) (time.Time, error) {
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if at, err := time.Parse(layout, strings.ToUpper(s)); err == nil {
			return at, nil
		}
	}
	return time.Time{}, fmt.Errorf("%w: %s must be a time such as 2030-01-31T12:00:00Z, or a day", errArgument, flag)
}

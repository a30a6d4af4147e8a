package main

import (
	"context"
	"fmt"
	"time"

	"deeplink/control/internal/decode"
	"deeplink/control/internal/store"
	"deeplink/control/internal/transfer"
)

type eventsExportCommand struct {
	Org    string `required:"" help:"Key of the organization."`
	Since  string `required:"" help:"Export events that arrived at this time or later: a time such as 2030-01-31T12:00:00Z, or a day (UTC)."`
	Until  string `help:"Export events that arrived before this time. Default: a minute ago, because all events before that are committed. Use no later time when one export continues another."`
	Format string `default:"ndjson" enum:"ndjson" help:"ndjson: one JSON object on each line."`
}

// Run implements control events export. It writes events in the order of their arrival, while it reads them.
func (c *eventsExportCommand) Run(t *env) error {
	since, err := parseMoment("--since", c.Since)
	if err != nil {
		return err
	}
	pool, err := t.openPool(1)
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
	return transfer.ExportEvents(t.ctx, s, o.ID, since, until, t.out)
}

// end returns the time at which the export ends.
func (c *eventsExportCommand) end(ctx context.Context, s *store.Store) (time.Time, error) {
	if c.Until == "" {
		return s.Settled(ctx)
	}
	return parseMoment("--until", c.Until)
}

// parseMoment parses a time or a day.
func parseMoment(flag, s string) (time.Time, error) {
	if at, ok := decode.ParseTime(s); ok {
		return at, nil
	}
	if day, err := time.Parse(time.DateOnly, s); err == nil {
		return day, nil
	}
	return time.Time{}, fmt.Errorf("%w: %s must be a time such as 2030-01-31T12:00:00Z, or a day", errArgument, flag)
}

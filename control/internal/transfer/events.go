package transfer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"time"

	"deeplink/control/internal/store"
)

const (
	// eventsPage is how many events are in memory at the same time: some megabytes at most, however many events exist.
	eventsPage = 1000
	// retryFor is how long an export, which may take hours, waits for a database that is not available, such as during a restart. It
	// retries every retryEvery.
	retryFor   = 5 * time.Minute
	retryEvery = time.Second
	// pageTimeout bounds the query of one page.
	pageTimeout = 30 * time.Second
)

// ExportEvents writes the events that arrived from since until before until, one JSON object a line, in the order of their arrival.
func ExportEvents(ctx context.Context, s *store.Store, organizationID string, since, until time.Time, out io.Writer) error {
	for after, last := store.FirstEvent(since), false; !last; {
		page, next, err := readEvents(ctx, s, organizationID, after, until)
		if err != nil {
			return err
		}
		if err := writeEvents(out, page); err != nil {
			return err
		}
		after, last = next, len(page) < eventsPage
	}
	return nil
}

// readEvents reads a page as Store.Events does, and retries while the database is not available.
func readEvents(ctx context.Context, s *store.Store, orgID string, after store.EventCursor, until time.Time) ([]store.StoredEvent, store.EventCursor, error) {
	for began := time.Now(); ; {
		page, next, err := readEventsOnce(ctx, s, orgID, after, until)
		if !errors.Is(err, store.ErrUnavailable) || time.Since(began) > retryFor {
			return page, next, err
		}
		select {
		case <-ctx.Done():
			return nil, after, err
		case <-time.After(retryEvery):
		}
	}
}

func readEventsOnce(ctx context.Context, s *store.Store, orgID string, after store.EventCursor, until time.Time) ([]store.StoredEvent, store.EventCursor, error) {
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	return s.Events(ctx, orgID, after, until, eventsPage)
}

// writeEvents writes a page. It has been read whole before: the reader of out may be slow, and Postgres ends a long statement.
func writeEvents(out io.Writer, page []store.StoredEvent) error {
	var lines bytes.Buffer
	encoder := json.NewEncoder(&lines)
	encoder.SetEscapeHTML(false)
	for i := range page {
		if err := encoder.Encode(&page[i]); err != nil {
			return err
		}
	}
	_, err := out.Write(lines.Bytes())
	return err
}

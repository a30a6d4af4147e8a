package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"deeplink/control/internal/bulkhead"
)

// A connection that waits for a row lock or counts a million links is not available to other calls, and API keys are authenticated over the
// same pool. So each organization and each device has a share of the pool, and a call takes a place in the share before it takes a
// connection. All shares together leave connections for authentication and for reads of single rows, which take no locks.
//
// The bounds apply per Store: an organization has its share of each control.
const (
	// maxWaitingWrites exceeds the two bursts of 100 writes that the rate limit allows the two server keys of an organization.
	maxWaitingWrites = 256
	// maxWriteWait and LockTimeout together leave a second of WriteTimeout for the work itself.
	maxWriteWait = 6 * time.Second
	// maxWaitingLists bounds the memory of concurrent lists. Each list may take a large part of a second.
	maxWaitingLists = 256
	// maxListWait leaves two seconds of the time for a request (10 s) for the list itself.
	maxListWait = 8 * time.Second
	// maxWaitingReports is what the rate limit allows a client key in a minute: all phones of an organization may send at the same time.
	maxWaitingReports = 660
	// maxWaitingDevice is more than an SDK sends concurrently: it sends one request after the other.
	maxWaitingDevice = 100
	// maxReportWait is half of maxWriteWait: a report waits for its device and then for its organization.
	maxReportWait = maxWriteWait / 2
)

const (
	// LockTimeout is how long a statement waits for a lock, to be set on the connections of the pool. It is longer than control itself
	// holds any lock; a forgotten psql session holds one for longer than any bound. A statement that is not first in the queue for a row
	// takes two locks, the place at the head of the queue and then the row, so WriteTimeout may end it first.
	LockTimeout = 8 * time.Second
	// WriteTimeout is the maximum duration of a write, including the waits for its share and for locks.
	WriteTimeout = maxWriteWait + LockTimeout + time.Second
)

// shares divide the connections of a pool.
type shares struct {
	// writes and lists are keyed by the id of an organization: changes of its data, and lists that may read very many of its rows.
	writes, lists *bulkhead.Bulkhead
	// reports and devices are for SDK requests. They are keyed by the id of an organization, and by this id with the id of a device.
	reports, devices *bulkhead.Bulkhead
}

// newShares divides a pool of that many connections. At the defaults, 16 for the API and 4 for the SDK, the shares are: 8 connections for
// writes with 2 of them for one organization, 4 for lists with 1, and 3 for reports with 2. With fewer than 4 connections for the API, or 3
// for the SDK, one organization can delay the others.
func newShares(connections int) *shares {
	share := func(slots, perKey, maxWaiting int, maxWait time.Duration) *bulkhead.Bulkhead {
		return bulkhead.New(bulkhead.Limits{Slots: max(1, slots), PerKey: max(1, perKey), MaxWaiting: maxWaiting, MaxWait: maxWait})
	}
	return &shares{
		// Two writers of an organization are faster than one: Postgres passes the lock to the next one, whose transaction has already
		// started. More than two would only wait for each other.
		writes: share(connections/2, min(2, connections/8), maxWaitingWrites, maxWriteWait),
		// A list keeps a CPU of Postgres busy, so more concurrent lists would not finish earlier.
		lists: share(connections/4, connections/16, maxWaitingLists, maxListWait),
		// One connection is left for authentication.
		reports: share(connections-1, connections/2, maxWaitingReports, maxReportWait),
		devices: share(math.MaxInt, 1, maxWaitingDevice, maxReportWait),
	}
}

// Shares holds the statistics of the shares of a Store.
type Shares struct{ Writes, Lists, Reports, Devices bulkhead.Stats }

// Shares returns the current statistics, for metrics.
func (s *Store) Shares() Shares {
	return Shares{s.shares.writes.Stats(), s.shares.lists.Stats(), s.shares.reports.Stats(), s.shares.devices.Stats()}
}

// enter waits for a place in a share. The error wraps ErrBusy when the share is full, and ErrUnavailable when ctx ends before.
func enter(ctx context.Context, share *bulkhead.Bulkhead, key, what string) (leave func(), err error) {
	leave, err = share.Acquire(ctx, key)
	switch {
	case err == nil:
		return leave, nil
	case errors.Is(err, bulkhead.ErrFull), errors.Is(err, bulkhead.ErrTimeout):
		return nil, fmt.Errorf("%s: %w: %w", what, ErrBusy, err)
	default:
		return nil, fmt.Errorf("%s: %w: %w", what, ErrUnavailable, err)
	}
}

// report runs a write of an SDK request once it has a place for the device and for the organization. The device comes first: calls that
// wait for their device must not take the places of other devices.
func (s *Store) report(ctx context.Context, orgID, deviceID, what string, statement func() error) error {
	leaveDevice, err := enter(ctx, s.shares.devices, orgID+"/"+deviceID, what)
	if err != nil {
		return err
	}
	defer leaveDevice()
	leave, err := enter(ctx, s.shares.reports, orgID, what)
	if err != nil {
		return err
	}
	defer leave()
	return retry(what, statement)
}

package store

import (
	"context"
	"maps"
	"time"

	"github.com/jackc/pgx/v5"

	"deeplink/shared/catalog"
	"deeplink/shared/feed"
)

const (
	// transferCheckEvery is how often the TXT records of a contested host are looked up.
	transferCheckEvery = time.Hour
	// transferCheckAgain is the pause before the next lookup when the waiting period is over and the host has not moved: DNS failed, or the
	// control that did the lookup was stopped.
	transferCheckAgain = 10 * time.Minute
)

// transferActor is the actor of audit entries of an organization that another organization's call affects. That organization must not learn
// who made the call.
var transferActor = ServiceActor("domain transfers")

// lockHostSQL serializes the transactions that decide about a host.
const lockHostSQL = `select pg_advisory_xact_lock(hashtext('host'), hashtext($1))`

const hostClaimsSQL = `
	select d.id, d.organization_id, coalesce(d.verification_token, ''), d.status = 'verified', not o.suspended, o.plan,
	       coalesce(t.owner_id::text, ''), t.started_at, t.completes_at, clock_timestamp()
	from domains d join organizations o on o.id = d.organization_id left join domain_transfers t on t.domain_id = d.id
	where d.id in (select v.id from domains v where v.host = $1 and v.status = 'verified'
	               union all select c.domain_id from domain_transfers c where c.host = $1
	               union all select g.id from domains g where g.id = nullif($2, '')::uuid and g.host = $1)
	order by t.started_at, d.id
	for no key update of d`

// lockHost locks the host for the rest of the transaction and returns its claims, in the order in which they were proved, and the time. The
// claims include the domain with the id even if it has no transfer; the id may be empty.
func lockHost(ctx context.Context, tx *transaction, host, domainID string) (claims []claim, now time.Time, err error) {
	if _, err := tx.Exec(ctx, lockHostSQL, host); err != nil {
		return nil, now, err
	}
	// A separate statement, whose snapshot includes what was committed before the lock was granted.
	rows, err := tx.Query(ctx, hostClaimsSQL, host, domainID)
	if err != nil {
		return nil, now, err
	}
	claims, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (c claim, err error) {
		var plan *catalog.Plan
		var ownerID string
		var startedAt, completesAt *time.Time
		err = row.Scan(&c.domainID, &c.orgID, &c.token, &c.verified, &c.entitled, &plan, &ownerID, &startedAt, &completesAt, &now)
		c.entitled = c.entitled && plan != nil && plan.Terms().CustomDomains
		if startedAt != nil && completesAt != nil {
			c.transfer = &transferRow{ownerID, *startedAt, *completesAt}
		}
		return c, err
	})
	return claims, now, err
}

const (
	startTransferSQL = `
		insert into domain_transfers (domain_id, owner_id, host, started_at, completes_at, check_at) values ($1, $2, $3, $4, $5, $6)
		on conflict (domain_id) do update
		set owner_id = excluded.owner_id, started_at = excluded.started_at, completes_at = excluded.completes_at, check_at = excluded.check_at`
	endTransferSQL  = `delete from domain_transfers where domain_id = $1`
	verifyDomainSQL = `update domains set status = 'verified', lost_at = null where organization_id = $1 and id = $2`
	loseDomainSQL   = `update domains set status = 'pending', lost_at = $3 where organization_id = $1 and id = $2`
)

// carryOut adds the settlement of a host to the batch, with an audit entry for each affected organization. actingID is the organization on
// whose behalf the actor of the transaction acts; it is empty for a background job.
func carryOut(tx *transaction, batch *pgx.Batch, host, actingID string, s settlement, now time.Time) error {
	trail := hostTrail{tx: tx, batch: batch, host: host, actingID: actingID}
	for _, e := range s.ended {
		batch.Queue(endTransferSQL, e.domainID)
		trail.add(DomainTransferEnded, e.claim, "in", map[string]any{"reason": e.reason})
		if e.reason != hostMoved {
			trail.add(DomainTransferEnded, s.owner, "out", map[string]any{"reason": e.reason})
		}
	}
	for _, c := range s.started {
		completesAt := now.Add(TransferPeriod)
		batch.Queue(startTransferSQL, c.domainID, s.owner.domainID, host, now, completesAt, now.Add(transferCheckEvery))
		detail := map[string]any{"completesAt": catalog.Time{Time: completesAt}}
		trail.add(DomainTransferStarted, c, "in", detail)
		trail.add(DomainTransferStarted, s.owner, "out", detail)
	}
	if s.winner != nil {
		batch.Queue(endTransferSQL, s.winner.domainID)
		if s.owner != nil {
			// Before the next statement: two domains of one host must never be verified.
			batch.Queue(loseDomainSQL, s.owner.orgID, s.owner.domainID, now)
			trail.add(DomainTransferred, s.winner, "in", nil)
			trail.add(DomainTransferred, s.owner, "out", nil)
		} else {
			trail.add(DomainVerified, s.winner, "", map[string]any{"status": catalog.DomainVerified})
		}
		batch.Queue(verifyDomainSQL, s.winner.orgID, s.winner.domainID)
	}
	return trail.err
}

// hostTrail adds audit entries about a host for the affected organizations. err is its first error.
type hostTrail struct {
	tx             *transaction
	batch          *pgx.Batch
	host, actingID string
	err            error
}

// add adds an entry about the domain of c, which may be nil. direction is "in" for an organization that gains the host, and "out" for one
// that loses it.
func (t *hostTrail) add(action Action, c *claim, direction string, more map[string]any) {
	if c == nil || t.err != nil || !t.tx.actor.recorded() {
		return
	}
	actor, detail := t.tx.actor, map[string]any{"host": t.host}
	if t.actingID != "" && t.actingID != c.orgID {
		actor = transferActor
	}
	if direction != "" {
		detail["direction"] = direction
	}
	maps.Copy(detail, more)
	t.err = t.tx.recordAs(actor, t.batch, entry{action, c.orgID, domainTarget, c.domainID, detail})
}

// HostCheck is a host whose TXT records are due for a lookup.
type HostCheck struct {
	Host string
	// At is the time of the database, for the [Proofs] of the lookup.
	At time.Time
}

const dueHostsSQL = `
	with due as (
		select t.domain_id from domain_transfers t where t.check_at <= now() order by t.check_at limit $1 for update skip locked
	), taken as (
		update domain_transfers t set check_at = case when t.completes_at > now() then least(now() + $2::interval, t.completes_at) else now() + $3::interval end
		from due where t.domain_id = due.domain_id returning t.host
	)
	select distinct host, now() from taken`

// DueHosts returns contested hosts whose lookups are due, and schedules their next lookups. Any number of processes may call it
// concurrently; an interrupted lookup is repeated at its next time. limit bounds the number of transfers.
func (s *Store) DueHosts(ctx context.Context, limit int) (due []HostCheck, err error) {
	err = retry("find hosts to look up", func() error {
		rows, err := s.pool.Query(ctx, dueHostsSQL, limit, transferCheckEvery, transferCheckAgain)
		if err != nil {
			return err
		}
		due, err = pgx.CollectRows(rows, pgx.RowToStructByPos[HostCheck])
		return err
	})
	return due, err
}

// SettleHost ends the transfers of the host that the proofs end, and moves the host when a waiting period is over. moved reports whether
// the host has a new owner; the edges must then apply the change.
func (s *Store) SettleHost(ctx context.Context, actor Actor, host string, proofs Proofs) (moved bool, changed feed.Change, err error) {
	// The settlement affects several organizations, so the host has its own share.
	err = s.write(ctx, actor, host, "settle who has a host", func(tx *transaction) error {
		claims, now, err := lockHost(ctx, tx, host, "")
		if err != nil {
			return err
		}
		var settled settlement
		if !s.isShared(host) { // custom domains no longer resolve on the shared host
			settled = settle(claims, "", proofs, now)
		}
		moved = settled.winner != nil
		var batch pgx.Batch
		if err := carryOut(tx, &batch, host, "", settled, now); err != nil {
			return err
		}
		changed, err = tx.finishBatch(ctx, &batch, entry{})
		return err
	})
	if err != nil {
		return false, feed.Change{}, err
	}
	return moved, changed, nil
}

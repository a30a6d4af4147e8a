package store

import (
	"bytes"
	"context"
	"encoding/json"
	"net/netip"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"deeplink/shared/catalog"
	"deeplink/shared/feed"
)

// Actor is who makes a change. The zero Actor is the service itself.
type Actor struct {
	Type ActorType
	// ID is the subject of a session token, the id of a key or the name of an operator. It may be empty.
	ID string
	// DisplayKey is the masked form of a key, empty for anyone else.
	DisplayKey string
	// Address is where the request came from, and RequestID names it. Operators have neither.
	Address   netip.Addr
	RequestID string
}

// ActorType is by what an actor is known.
type ActorType string

// The actors. The values are those of the database and of the portal.
const (
	ActorUser     ActorType = "user"
	ActorKey      ActorType = "key"
	ActorOperator ActorType = "operator"
)

// By returns the store for changes that actor makes: each of them is in the audit trail exactly when it has happened. The Store it is
// called on records nothing, which is for what the service does on its own account.
func (s *Store) By(actor Actor) *Store {
	by := *s
	by.actor = actor
	return &by
}

// Action is what was done. The values are those of the database and of the portal.
type Action string

// The actions.
const (
	LinkCreated           Action = "link.create"
	LinkUpdated           Action = "link.update"
	LinkDeleted           Action = "link.delete"
	DomainAdded           Action = "domain.create"
	DomainVerified        Action = "domain.verify"
	DomainDeleted         Action = "domain.delete"
	KeyRegenerated        Action = "key.regenerate"
	AppConfigSet          Action = "appConfig.update"
	PlanSet               Action = "plan.update"
	OrganizationCreated   Action = "organization.create"
	OrganizationSuspended Action = "organization.suspend"
	OrganizationResumed   Action = "organization.resume"
)

// Actions are all of them.
var Actions = []Action{
	LinkCreated, LinkUpdated, LinkDeleted, DomainAdded, DomainVerified, DomainDeleted, KeyRegenerated, AppConfigSet, PlanSet,
	OrganizationCreated, OrganizationSuspended, OrganizationResumed,
}

// target is the kind of thing that was changed.
type target string

const (
	linkTarget         target = "link"
	domainTarget       target = "domain"
	keyTarget          target = "key"
	appConfigTarget    target = "appConfig" // named by its organization
	organizationTarget target = "organization"
)

// entry is one change for the audit trail. The zero entry is none: what a call repeats, it does not change.
type entry struct {
	action         Action
	organizationID string
	target         target
	targetID       string
	// detail is what the action does not say: names and settings, never a credential or the content of a link.
	detail map[string]any
}

const recordSQL = `
	insert into audit_log (id, organization_id, actor_type, actor_id, actor_display_key, ip, request_id, action, target_type, target_id,
	                       detail)
	values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`

// Recorded is an entry of the audit trail that was committed, as the log has it: without its detail.
type Recorded struct {
	ID             string
	Actor          Actor
	Action         Action
	OrganizationID string
	// TargetType and TargetID say what was changed.
	TargetType, TargetID string
}

// Telling returns the store whose changes by an Actor are told to on, one by one, once they are committed. on is called by whoever made
// the change, by several at once; it should be quick. It is not told of imports, nor of a change of which nobody knows whether it was
// committed: the trail has both.
func (s *Store) Telling(on func(Recorded)) *Store {
	telling := *s
	telling.tell = on
	return &telling
}

// record adds the entry to the batch, if somebody is to be named.
func (s *Store) record(tx *transaction, batch *pgx.Batch, e entry) error {
	if s.actor == (Actor{}) || e.action == "" {
		return nil
	}
	id, err := uuid.NewV7()
	if err != nil {
		return err
	}
	tx.recorded = append(tx.recorded, Recorded{id.String(), s.actor, e.action, e.organizationID, string(e.target), e.targetID})
	detail, err := json.Marshal(e.detail)
	if err != nil {
		return err
	}
	var address *netip.Addr
	if s.actor.Address.IsValid() {
		address = &s.actor.Address
	}
	batch.Queue(recordSQL, id.String(), e.organizationID, s.actor.Type, orNull(s.actor.ID), orNull(s.actor.DisplayKey), address,
		orNull(s.actor.RequestID), e.action, e.target, e.targetID, detail)
	return nil
}

// conclude records what the transaction did, and returns what it made edges forget. It costs one round trip, as asking alone would:
// those who wait for the locks of the transaction do not wait longer for the sake of the trail.
func (s *Store) conclude(ctx context.Context, tx *transaction, e entry) (c feed.Change, err error) {
	var batch pgx.Batch
	return s.concludeBatch(ctx, tx, &batch, e)
}

// concludeBatch is conclude, in the round trip of a batch that the transaction ends with.
func (s *Store) concludeBatch(ctx context.Context, tx *transaction, batch *pgx.Batch, e entry) (c feed.Change, err error) {
	queueChange(batch, &c)
	if err := s.record(tx, batch, e); err != nil {
		return feed.Change{}, err
	}
	err = tx.SendBatch(ctx, batch).Close()
	return c, err
}

// concludeWith is conclude for a transaction that may have made edges forget nothing. It returns what xid did, which may be an
// earlier one.
func (s *Store) concludeWith(ctx context.Context, tx *transaction, e entry, xid uint64) (feed.Change, error) {
	c := feed.Change{XID: xid}
	var batch pgx.Batch
	queueEarlierChange(&batch, &c)
	if err := s.record(tx, &batch, e); err != nil {
		return feed.Change{}, err
	}
	err := tx.SendBatch(ctx, &batch).Close()
	return c, err
}

// differences returns the names of the members in which a and b differ as they are answered, in order.
func differences[T any](a, b T) ([]string, error) {
	var members [2]map[string]json.RawMessage
	for i, v := range []T{a, b} {
		object, err := json.Marshal(v)
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(object, &members[i]); err != nil {
			return nil, err
		}
	}
	var names []string
	for name, value := range members[0] {
		if !bytes.Equal(value, members[1][name]) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// MaxAudited bounds how far AuditLog pages and counts: what is older is found by a time.
const MaxAudited = 10_000

// AuditFilter says which part of the trail to list, and which page of it.
type AuditFilter struct {
	// Page counts from 1, Limit is the size of a page; both must be positive.
	Page, Limit int
	// Since and Until bound the times, the one included and the other not. Nil: no bound.
	Since, Until *time.Time
}

// AuditEntry is one change as the portal answers it.
type AuditEntry struct {
	ID        string          `json:"id"`
	At        catalog.Time    `json:"at"`
	Actor     AuditActor      `json:"actor"`
	Action    Action          `json:"action"`
	Target    AuditTarget     `json:"target"`
	IP        *netip.Addr     `json:"ip"`
	RequestID *string         `json:"requestId"`
	Detail    json.RawMessage `json:"detail"`
}

// AuditActor is who made a change.
type AuditActor struct {
	Type       ActorType `json:"type"`
	ID         *string   `json:"id"`
	DisplayKey *string   `json:"displayKey"`
}

// AuditTarget is what was changed.
type AuditTarget struct {
	Type string `json:"type"`
	ID   string `json:"id"`
}

const audited = `
	organization_id = $1 and at >= coalesce($2::timestamptz, '-infinity') and at < coalesce($3::timestamptz, 'infinity')`

const countAuditedSQL = `select count(*) from (select from audit_log where ` + audited + ` limit $4) e`

const auditedSQL = `
	select id, at, actor_type, actor_id, actor_display_key, action, target_type, target_id, ip, request_id, detail
	from audit_log where ` + audited + `
	order by at desc, id desc limit $4 offset $5`

// AuditLog returns a page of the organization's trail, the newest first, and how many entries the filter matches, MaxAudited at most.
// Both are of one moment. A page past the end, or past MaxAudited, is empty.
func (s *Store) AuditLog(ctx context.Context, orgID string, f AuditFilter) (entries []AuditEntry, total int64, err error) {
	err = s.snapshot(ctx, "list the audit trail", func(tx pgx.Tx) error {
		entries = []AuditEntry{}
		if err := tx.QueryRow(ctx, countAuditedSQL, orgID, f.Since, f.Until, MaxAudited).Scan(&total); err != nil {
			return err
		}
		// Compared before it is multiplied: no page is so far that its offset overflows.
		if int64(f.Page-1) > total/int64(f.Limit) {
			return nil
		}
		offset := int64(f.Page-1) * int64(f.Limit)
		limit := min(int64(f.Limit), total-offset)
		rows, err := tx.Query(ctx, auditedSQL, orgID, f.Since, f.Until, limit, offset)
		if err != nil {
			return err
		}
		entries, err = pgx.AppendRows(entries, rows, scanAuditEntry)
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	return entries, total, nil
}

func scanAuditEntry(row pgx.CollectableRow) (e AuditEntry, err error) {
	err = row.Scan(&e.ID, &e.At.Time, &e.Actor.Type, &e.Actor.ID, &e.Actor.DisplayKey, &e.Action, &e.Target.Type, &e.Target.ID,
		&e.IP, &e.RequestID, &e.Detail)
	return e, err
}

const purgeAuditLogSQL = `select purge_audit_log()`

// PurgeAuditLog drops what is older than 400 days. Any number of processes may run it at once.
func (s *Store) PurgeAuditLog(ctx context.Context) error {
	return retry("purge the audit trail", func() error {
		_, err := s.pool.Exec(ctx, purgeAuditLogSQL)
		return err
	})
}

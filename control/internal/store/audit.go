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
)

// Action is the kind of a change. The values are those of the database and of the portal.
type Action string

// All actions.
const (
	LinkCreated           Action = "link.create"
	LinkUpdated           Action = "link.update"
	LinkDeleted           Action = "link.delete"
	DomainAdded           Action = "domain.create"
	DomainVerified        Action = "domain.verify"
	DomainDeleted         Action = "domain.delete"
	DomainTransferStarted Action = "domainTransfer.start"
	DomainTransferEnded   Action = "domainTransfer.cancel"
	DomainTransferred     Action = "domainTransfer.complete"
	KeyRegenerated        Action = "key.regenerate"
	AppConfigSet          Action = "appConfig.update"
	PlanSet               Action = "plan.update"
	OrganizationCreated   Action = "organization.create"
	OrganizationSuspended Action = "organization.suspend"
	OrganizationResumed   Action = "organization.resume"
	DeviceDeleted         Action = "device.delete"
	SessionCreated        Action = "session.create"
	SessionSwitched       Action = "session.switch"
	SessionEnded          Action = "session.end"
	ConsoleLinkCreated    Action = "consoleLink.create"
	ConsoleLinkSpent      Action = "consoleLink.spend"
	ClicksReclassified    Action = "clicks.reclassify"
	ClicksForgotten       Action = "clicks.forget"
)

// Actions lists all actions.
var Actions = []Action{
	LinkCreated, LinkUpdated, LinkDeleted, DomainAdded, DomainVerified, DomainDeleted, DomainTransferStarted, DomainTransferEnded,
	DomainTransferred, KeyRegenerated, AppConfigSet, PlanSet, OrganizationCreated, OrganizationSuspended, OrganizationResumed,
	DeviceDeleted, SessionCreated, SessionSwitched, SessionEnded, ConsoleLinkCreated, ConsoleLinkSpent, ClicksReclassified, ClicksForgotten,
}

// target is the kind of the changed object.
type target string

const (
	linkTarget         target = "link"
	domainTarget       target = "domain"
	keyTarget          target = "key"
	appConfigTarget    target = "appConfig" // named by its organization
	organizationTarget target = "organization"
	sessionTarget      target = "session"
	consoleLinkTarget  target = "consoleLink"
)

// entry is one audit entry. The zero entry stands for no entry: a call that repeats an earlier one changes nothing.
type entry struct {
	action         Action
	organizationID string
	target         target
	targetID       string
	// detail adds names and settings to the action, never a credential or the content of a link.
	detail map[string]any
}

// auditColumns are the columns that control may set.
var auditColumns = []string{
	"id", "organization_id", "actor_type", "actor_id", "actor_display_key", "ip", "request_id", "action", "target_type", "target_id", "detail",
}

// recordSQL adds a row of auditColumns.
const recordSQL = `
	insert into audit_log (id, organization_id, actor_type, actor_id, actor_display_key, ip, request_id, action, target_type, target_id,
	                       detail)
	values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`

// Recorded is a committed audit entry without its detail, for the log.
type Recorded struct {
	ID             string
	Actor          Actor
	Action         Action
	OrganizationID string
	// TargetType and TargetID identify the changed object.
	TargetType, TargetID string
}

// WithAuditHook returns a copy of the store that calls hook after each committed change that is in the trail. The goroutine that made
// the change calls it, so several may call it at the same time and it should be quick. The store does not call it for links that an
// import created or that DeleteOldLinks deleted, nor for a change whose commit got no response: the trail has these too.
func (s *Store) WithAuditHook(hook func(Recorded)) *Store {
	hooked := *s
	hooked.auditHook = hook
	return &hooked
}

// record adds the entry to the batch, unless it is empty or the trail leaves out the actor.
func (tx *transaction) record(batch *pgx.Batch, e entry) error {
	return tx.recordAs(tx.actor, batch, e)
}

// recordAs is record under another actor: for an organization that must not learn the actor of the transaction.
func (tx *transaction) recordAs(actor Actor, batch *pgx.Batch, e entry) error {
	if !actor.recorded() || e.action == "" {
		return nil
	}
	id, row, err := auditRow(actor, e)
	if err != nil {
		return err
	}
	tx.entries = append(tx.entries, Recorded{id, actor, e.action, e.organizationID, string(e.target), e.targetID})
	batch.Queue(recordSQL, row...)
	return nil
}

// auditRow returns a new id for the entry, and its values for auditColumns.
func auditRow(actor Actor, e entry) (id string, row []any, err error) {
	generated, err := uuid.NewV7()
	if err != nil {
		return "", nil, err
	}
	detail, err := json.Marshal(e.detail)
	if err != nil {
		return "", nil, err
	}
	var address *netip.Addr
	if actor.address.IsValid() {
		address = &actor.address
	}
	return generated.String(), []any{generated.String(), e.organizationID, string(actor.kind), orNull(actor.id), orNull(actor.displayKey), address,
		orNull(actor.requestID), string(e.action), string(e.target), e.targetID, detail}, nil
}

// recordAll adds an entry for each of the links to the trail, as record does for one, and reports none of them to the hook.
func (tx *transaction) recordAll(ctx context.Context, action Action, links []catalog.Link) error {
	if !tx.actor.recorded() {
		return nil
	}
	_, err := tx.CopyFrom(ctx, pgx.Identifier{"audit_log"}, auditColumns, pgx.CopyFromSlice(len(links), func(i int) ([]any, error) {
		_, row, err := auditRow(tx.actor, linkEntry(action, links[i], nil))
		return row, err
	}))
	return err
}

// differences returns the sorted names of the members in which the JSON forms of a and b differ.
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

// MaxAudited bounds the pages and the count of AuditLog. To reach older entries, filter by time.
const MaxAudited = 10_000

// AuditFilter selects a part of the trail and a page of it.
type AuditFilter struct {
	// Page counts from 1, Limit is the size of a page; both must be positive.
	Page, Limit int
	// Since (inclusive) and Until (exclusive) bound the times. Nil: no bound.
	Since, Until *time.Time
}

// AuditEntry is an audit entry in a response of the portal.
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

// AuditActor is the actor of a change.
type AuditActor struct {
	Type       ActorType `json:"type"`
	ID         *string   `json:"id"`
	DisplayKey *string   `json:"displayKey"`
}

// AuditTarget is the changed object.
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
// Both are from one snapshot. A page past the end, or past MaxAudited, is empty.
func (s *Store) AuditLog(ctx context.Context, orgID string, f AuditFilter) (entries []AuditEntry, total int64, err error) {
	err = s.snapshot(ctx, "list the audit trail", func(tx pgx.Tx) error {
		entries = []AuditEntry{}
		if err := tx.QueryRow(ctx, countAuditedSQL, orgID, f.Since, f.Until, MaxAudited).Scan(&total); err != nil {
			return err
		}
		// Compare before the multiplication, so that the offset of a very high page cannot overflow.
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

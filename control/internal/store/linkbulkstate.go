package store

import (
	"context"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"deeplink/shared/catalog"
)

// bulk is a bulk write in its transaction, which holds the lock that all writers of the organization's links take. So what it has read stays
// true, and it applies operations to its own copy of the links first. It writes them to Postgres in as few statements as possible: when all
// operations were applied, or earlier, when an operation concerns a link, a code or an external id of a pending write.
type bulk struct {
	store      *Store
	tx         *transaction
	w          Write
	operations []BulkOperation
	outcomes   []BulkOutcome
	// codes are generated, for operations that may create a link without one.
	codes []string

	locked        lockedLinks
	registered    bool
	now           time.Time
	domains       map[string]targetDomain // by id
	defaultDomain string

	// links are all that operations name, by id. byCode and byExternalID have the ids of the links with all codes and external ids that occur
	// in operations.
	links                map[string]*bulkLink
	byCode, byExternalID map[string]string

	// Pending writes, the links that they concern, and the codes and external ids that they make free.
	created                    []catalog.Link
	updated                    []pendingUpdate
	deleted                    []string
	touched                    map[string]bool
	releasedCodes, releasedIDs map[string]bool

	wrote   bool
	entries []entry
	missing []LinkRef
	// earlier are the last transactions that changed what edges serve of links that an operation left unchanged.
	earlier map[uint64]struct{}
}

// bulkLink is a link of a bulk write.
type bulkLink struct {
	link       catalog.LinkWithDomain
	changedXID uint64
}

// pendingUpdate is an update of a link by the operation with the index.
type pendingUpdate struct {
	operation int
	link      *bulkLink
}

func newBulk(s *Store, tx *transaction, w Write, operations []BulkOperation) *bulk {
	return &bulk{
		store: s, tx: tx, w: w, operations: operations, outcomes: make([]BulkOutcome, len(operations)), codes: make([]string, len(operations)),
		domains: make(map[string]targetDomain), links: make(map[string]*bulkLink), byCode: make(map[string]string), byExternalID: make(map[string]string),
		touched: make(map[string]bool), releasedCodes: make(map[string]bool), releasedIDs: make(map[string]bool), earlier: make(map[uint64]struct{}),
	}
}

// start locks the organization's links and reads everything that the operations name.
func (b *bulk) start(ctx context.Context, out *Written) (repeated bool, err error) {
	var checks newLinkChecks
	orgID := b.w.OrganizationID
	b.locked, repeated, err = start(ctx, b.tx, b.w, true, out, func(batch *pgx.Batch) {
		checks.queueNow(batch)
		batch.Queue(appConfigRegisteredSQL, orgID).QueryRow(func(row pgx.Row) error { return row.Scan(&b.registered) })
		batch.Queue(targetDomainsSQL, orgID).Query(b.scanDomains)
	})
	if err != nil || repeated {
		return repeated, err
	}
	b.now = checks.now
	return false, b.load(ctx)
}

func (b *bulk) scanDomains(rows pgx.Rows) error {
	for rows.Next() {
		d := targetDomain{found: true}
		if err := rows.Scan(&d.domain.ID, &d.host, &d.domain.Status, &d.domain.CreatedAt.Time); err != nil {
			return err
		}
		b.domains[d.domain.ID] = d
		if d.host == nil {
			b.defaultDomain = d.domain.ID
		}
	}
	return rows.Err()
}

// load reads and locks the links that operations name, and finds the codes that are taken.
func (b *bulk) load(ctx context.Context) error {
	var ids, externalIDs, codes []string
	for i, o := range b.operations {
		if o.Err != nil {
			continue
		}
		if o.Target.ID != "" {
			ids = append(ids, o.Target.ID)
		}
		if o.Target.ExternalID != "" {
			externalIDs = append(externalIDs, o.Target.ExternalID)
		}
		wanted, creates := o.newLink()
		if !creates {
			o.Patch.Apply(&wanted)
		}
		if wanted.ExternalID != nil {
			externalIDs = append(externalIDs, *wanted.ExternalID)
		}
		switch {
		case wanted.ShortCode != "":
			codes = append(codes, strings.ToLower(wanted.ShortCode))
		case creates:
			b.codes[i] = catalog.GenerateCode()
			codes = append(codes, b.codes[i])
		}
	}
	var batch pgx.Batch
	batch.Queue(lockNamedLinksSQL, b.w.OrganizationID, ids, externalIDs).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			link, changedXID, err := b.store.scanLink(rows)
			if err != nil {
				return err
			}
			b.links[link.ID] = &bulkLink{link, changedXID}
			if link.ExternalID != nil {
				b.byExternalID[*link.ExternalID] = link.ID
			}
		}
		return rows.Err()
	})
	b.queueCodes(&batch, codes)
	if err := b.tx.SendBatch(ctx, &batch).Close(); err != nil {
		return err
	}
	return b.replaceTakenCodes(ctx, codes)
}

// queueCodes finds the links that have the codes, which are in lower case.
func (b *bulk) queueCodes(batch *pgx.Batch, codes []string) {
	batch.Queue(codeOwnersSQL, b.w.OrganizationID, codes).Query(func(rows pgx.Rows) error {
		var code, id string
		_, err := pgx.ForEachRow(rows, []any{&code, &id}, func() error {
			b.byCode[code] = id
			return nil
		})
		return err
	})
}

// replaceTakenCodes generates new codes for those that are taken, or that another operation has, too.
func (b *bulk) replaceTakenCodes(ctx context.Context, codes []string) error {
	for range generatedCodes {
		count := make(map[string]int, len(codes))
		for _, code := range codes {
			count[code]++
		}
		var replaced []string
		for i, code := range b.codes {
			if _, taken := b.byCode[code]; code == "" || !taken && count[code] < 2 {
				continue
			}
			b.codes[i] = catalog.GenerateCode()
			replaced = append(replaced, b.codes[i])
		}
		if replaced == nil {
			return nil
		}
		codes = append(codes, replaced...)
		var batch pgx.Batch
		b.queueCodes(&batch, replaced)
		if err := b.tx.SendBatch(ctx, &batch).Close(); err != nil {
			return err
		}
	}
	return nil
}

// apply applies an operation and sets its outcome. The error is one of Postgres.
func (b *bulk) apply(ctx context.Context, i int) error {
	o := b.operations[i]
	if o.Err != nil {
		b.outcomes[i].Err = o.Err
		return nil
	}
	wanted, creates := o.newLink()
	if o.Kind == CreateLink {
		return b.create(ctx, i, wanted)
	}
	id := o.Target.ID
	if o.Target.ExternalID != "" {
		id = b.byExternalID[o.Target.ExternalID]
	}
	link := b.links[id]
	switch {
	case link == nil && creates && wanted.Path == "":
		b.outcomes[i].Err = errNoLinkPath
	case link == nil && creates:
		return b.create(ctx, i, wanted)
	case link == nil:
		b.outcomes[i].Err = ErrNotFound
		b.missing = append(b.missing, o.Target)
	case o.Kind == DeleteLink:
		return b.remove(ctx, i, link)
	default:
		return b.update(ctx, i, link)
	}
	return nil
}

// errNoLinkPath is catalog.ErrNoPath for an operation.
var errNoLinkPath = catalog.ErrNoPathAt("link.")

// create applies a create of the link, as [Store.WriteLink] does.
func (b *bulk) create(ctx context.Context, i int, l catalog.Link) error {
	if l.ShortCode == "" {
		l.ShortCode = b.codes[i]
	}
	if l.DomainID == "" {
		l.DomainID = b.defaultDomain
	}
	checks := newLinkChecks{registered: b.registered, target: b.domains[l.DomainID]}
	_, checks.codeTaken = b.byCode[strings.ToLower(l.ShortCode)]
	if l.ExternalID != nil {
		_, checks.externalIDTaken = b.byExternalID[*l.ExternalID]
	}
	if err := checks.check(b.locked); err != nil {
		b.outcomes[i].Err = err
		return nil
	}
	if err := b.flushIfReleased(ctx, l.ShortCode, l.ExternalID); err != nil {
		return err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return err
	}
	l.ID, l.OrganizationID = id.String(), b.w.OrganizationID
	created := b.store.created(l, b.locked.organization, checks.target, b.now)
	b.links[l.ID] = &bulkLink{link: created}
	b.take(created.Link)
	b.locked.used++
	b.created = append(b.created, created.Link)
	b.done(i, LinkCreated, Created, created, nil)
	return nil
}

// update applies a patch, as [Store.WriteLink] does.
func (b *bulk) update(ctx context.Context, i int, link *bulkLink) error {
	if err := b.flushIfTouched(ctx, link); err != nil {
		return err
	}
	before, after := link.link.Link, link.link.Link
	b.operations[i].Patch.Apply(&after)
	if after.DomainID == "" {
		after.DomainID = b.defaultDomain
	}
	domain := b.domains[after.DomainID]
	codeOwner, codeTaken := b.byCode[strings.ToLower(after.ShortCode)]
	externalOwner, externalIDTaken := "", false
	if after.ExternalID != nil {
		externalOwner, externalIDTaken = b.byExternalID[*after.ExternalID]
	}
	switch outcome := &b.outcomes[i]; {
	case after.DomainID != before.DomainID && !domain.found:
		outcome.Err = ErrDomainNotFound
		return nil
	case codeTaken && codeOwner != after.ID:
		outcome.Err = ErrShortCodeTaken
		return nil
	case externalIDTaken && externalOwner != after.ID:
		outcome.Err = ErrLinkExternalIDTaken
		return nil
	}
	fields, err := differences(before, after)
	if err != nil {
		return err
	}
	if fields == nil {
		b.outcomes[i] = BulkOutcome{Result: Unchanged, Link: link.link}
		b.seen(link.changedXID)
		return nil
	}
	if err := b.flushIfReleased(ctx, after.ShortCode, after.ExternalID); err != nil {
		return err
	}
	b.release(before)
	b.take(after)
	after.URL = catalog.ShortURL(b.store.linkBase, b.locked.organization.OrgKey, deref(domain.host), after.ShortCode)
	link.link = catalog.LinkWithDomain{Link: after, Domain: b.store.domain(after.DomainID, domain.host, domain.domain)}
	b.updated = append(b.updated, pendingUpdate{i, link})
	b.done(i, LinkUpdated, Updated, link.link, fields)
	return nil
}

// remove applies a delete.
func (b *bulk) remove(ctx context.Context, i int, link *bulkLink) error {
	if err := b.flushIfTouched(ctx, link); err != nil {
		return err
	}
	b.release(link.link.Link)
	delete(b.links, link.link.ID)
	b.locked.used--
	b.deleted = append(b.deleted, link.link.ID)
	b.done(i, LinkDeleted, Deleted, link.link, nil)
	return nil
}

// done sets the outcome of an operation that changed a link.
func (b *bulk) done(i int, action Action, result Result, l catalog.LinkWithDomain, fields []string) {
	b.touched[l.ID] = true
	b.outcomes[i] = BulkOutcome{Result: result, Link: l}
	b.entries = append(b.entries, linkEntry(action, l.Link, fields))
}

// seen adds a transaction to those that the edges must have applied. 0 is that of a link that this write has created.
func (b *bulk) seen(xid uint64) {
	if xid != 0 {
		b.earlier[xid] = struct{}{}
	}
}

// take records the code and the external id of a link as taken.
func (b *bulk) take(l catalog.Link) {
	b.byCode[strings.ToLower(l.ShortCode)] = l.ID
	if l.ExternalID != nil {
		b.byExternalID[*l.ExternalID] = l.ID
	}
}

// release records the code and the external id of a link as free, once the pending writes are in Postgres.
func (b *bulk) release(l catalog.Link) {
	delete(b.byCode, strings.ToLower(l.ShortCode))
	b.releasedCodes[strings.ToLower(l.ShortCode)] = true
	if l.ExternalID != nil {
		delete(b.byExternalID, *l.ExternalID)
		b.releasedIDs[*l.ExternalID] = true
	}
}

// flushIfTouched makes room for another write to the link.
func (b *bulk) flushIfTouched(ctx context.Context, link *bulkLink) error {
	if !b.touched[link.link.ID] {
		return nil
	}
	return b.flush(ctx)
}

// flushIfReleased makes a code and an external id free in Postgres if a pending write releases them.
func (b *bulk) flushIfReleased(ctx context.Context, code string, externalID *string) error {
	if !b.releasedCodes[strings.ToLower(code)] && !(externalID != nil && b.releasedIDs[*externalID]) {
		return nil
	}
	return b.flush(ctx)
}

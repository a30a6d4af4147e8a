package store

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"deeplink/shared/catalog"
	"deeplink/shared/feed"
)

// Write is what all writes of links have in common.
type Write struct {
	OrganizationID string
	Require        Requirement
	// Key makes the write idempotent: its response is committed with its effect. Nil: it is not idempotent.
	Key *IdempotencyKey
}

// OperationKind is the kind of an Operation. The values are those of the API.
type OperationKind string

// The kinds of operations. An upsert is an update, or a create if no link has the external id.
const (
	CreateLink OperationKind = "create"
	UpdateLink OperationKind = "update"
	UpsertLink OperationKind = "upsert"
	DeleteLink OperationKind = "delete"
)

// Operation is one operation on one link.
type Operation struct {
	Kind OperationKind
	// Target is the link of an update, upsert or delete. An upsert has an external id.
	Target LinkRef
	// Link has the fields of a create, as catalog.ReadLink read them.
	Link catalog.Link
	// Patch is that of an update or upsert.
	Patch catalog.Patch
	// Condition is checked under the lock of the write, once the link was found. Nil: none. Bulk writes have none.
	Condition Condition
}

// LinkRef names a link by one of its ids; the other one is empty.
type LinkRef struct{ ID, ExternalID string }

// Condition is a precondition of a write. It gets the ETag of the link, empty if an upsert would create the link. If it returns an error,
// nothing is written, and the write returns an error that wraps it.
type Condition func(etag string) error

// Result is what an operation did. The values are those of the API.
type Result string

// The results.
const (
	Created   Result = "created"
	Updated   Result = "updated"
	Unchanged Result = "unchanged"
	Deleted   Result = "deleted"
)

// Render returns the response to a write with this result. Of a deleted link only id and short code are set. The store may call it several
// times for one write.
type Render func(l catalog.LinkWithDomain, result Result) (Response, error)

// WriteLink runs one operation. Errors, in the order of the checks: that of the requirement, ErrKeyReused and ErrKeyInProgress,
// ErrNotFound, that of the condition, a catalog.Invalid for an upsert that lacks the path of a new link, ErrAppConfigMissing,
// ErrDomainNotFound, ErrQuotaExceeded, ErrShortCodeTaken, ErrLinkExternalIDTaken.
func (s *Store) WriteLink(ctx context.Context, actor Actor, w Write, o Operation, render Render) (out Written, err error) {
	run, what := s.updateLink, "update a link"
	switch o.Kind {
	case CreateLink:
		run, what = s.createLink, "create a link"
	case UpsertLink:
		run, what = s.upsertLink, "create or update a link"
	case DeleteLink:
		run, what = s.deleteLink, "delete a link"
	}
	code := newCode(o)
	for range generatedCodes {
		err = s.writeLinks(ctx, actor, w, what, func(tx *transaction) error {
			out = Written{}
			return run(ctx, tx, w, o, code, render, &out)
		})
		switch {
		case code != "" && errors.Is(err, ErrShortCodeTaken):
			code = catalog.GenerateCode()
			continue
		case o.Kind == UpsertLink && errors.Is(err, ErrLinkExternalIDTaken):
			continue // a writer that takes no lock, such as psql, has just created the link: the next attempt updates it
		}
		break
	}
	if err != nil {
		return Written{}, err
	}
	return out, nil
}

// generatedCodes bounds the number of attempts to generate a free code. With a million links one code in 850,000 is taken.
const generatedCodes = 8

// newCode returns a generated code if the operation may create a link without one, otherwise "".
func newCode(o Operation) string {
	link, creates := o.newLink()
	if creates && link.ShortCode == "" {
		return catalog.GenerateCode()
	}
	return ""
}

// newLink returns the link that the operation creates, if it is one that can.
func (o Operation) newLink() (link catalog.Link, creates bool) {
	switch o.Kind {
	case CreateLink:
		return o.Link, true
	case UpsertLink:
		link = catalog.Link{IsActive: true}
		o.Patch.Apply(&link)
		link.ExternalID = &o.Target.ExternalID
		return link, true
	}
	return catalog.Link{}, false
}

// finish renders the response, and commits with the batch, in which the change of the transaction itself is what edges must apply.
func (out *Written) finish(ctx context.Context, tx *transaction, w Write, batch *pgx.Batch, e entry, response Response) (err error) {
	out.Response = response
	w.store(batch, *out, 0, false)
	out.Change, err = tx.finishBatch(ctx, batch, e)
	return err
}

// start sends the batch that locks the organization's links for a write. Without a key the caller's own statements are in it, too. With a
// key the transaction may hold no lock afterwards, so they must be in a batch that follows: merge is for statements that take no locks.
func start(ctx context.Context, tx *transaction, w Write, merge bool, out *Written, queue func(*pgx.Batch)) (locked lockedLinks, repeated bool, err error) {
	var batch pgx.Batch
	locked.queueFor(&batch, w)
	if w.Key == nil || merge {
		queue(&batch)
	}
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return locked, false, err
	}
	repeated, err = locked.admit(ctx, tx, w, out)
	if err != nil || repeated || w.Key == nil || merge {
		return locked, repeated, err
	}
	var rest pgx.Batch
	queue(&rest)
	return locked, false, tx.SendBatch(ctx, &rest).Close()
}

// CreateLink creates a link of the organization from the fields that catalog.ReadLink read, and returns its row with URL. It is
// [Store.WriteLink] without a key.
func (s *Store) CreateLink(ctx context.Context, actor Actor, orgID string, require Requirement, l catalog.Link) (catalog.Link, feed.Change, error) {
	return s.writeOne(ctx, actor, orgID, require, Operation{Kind: CreateLink, Link: l})
}

// UpdateLink applies the patch and returns the row with URL. If the patch changes nothing that edges serve (a new title, or the present
// values), the returned change is the last one that did, so that a repeated call waits for the same edges as the first one.
func (s *Store) UpdateLink(
	ctx context.Context, actor Actor, orgID string, require Requirement, id string, p catalog.Patch,
) (catalog.Link, feed.Change, error) {
	return s.writeOne(ctx, actor, orgID, require, Operation{Kind: UpdateLink, Target: LinkRef{ID: id}, Patch: p})
}

// DeleteLink deletes the link permanently and frees its code. Errors: that of require, and ErrNotFound, after which see
// [Store.Deleted].
func (s *Store) DeleteLink(ctx context.Context, actor Actor, orgID string, require Requirement, id string) (feed.Change, error) {
	_, changed, err := s.writeOne(ctx, actor, orgID, require, Operation{Kind: DeleteLink, Target: LinkRef{ID: id}})
	return changed, err
}

func (s *Store) writeOne(ctx context.Context, actor Actor, orgID string, require Requirement, o Operation) (l catalog.Link, changed feed.Change, err error) {
	out, err := s.WriteLink(ctx, actor, Write{OrganizationID: orgID, Require: require}, o, func(written catalog.LinkWithDomain, _ Result) (Response, error) {
		l = written.Link
		return Response{}, nil
	})
	if err != nil {
		return catalog.Link{}, feed.Change{}, err
	}
	return l, out.Change, nil
}

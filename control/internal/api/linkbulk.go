package api

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"

	"github.com/go-chi/chi/v5"

	"deeplink/control/internal/decode"
	"deeplink/control/internal/store"
	"deeplink/shared/catalog"
	"deeplink/shared/envelope"
	"deeplink/shared/strictjson"
)

const (
	// bulkSuffix ends the paths of bulk requests, and bulkMethods are their methods. GET and HEAD are those of the route of one link, which
	// finds the id malformed.
	bulkSuffix  = "/links/bulk"
	bulkMethods = "GET, HEAD, POST"
	// maxBulkBody bounds the body of a bulk request in bytes, and maxBulkDepth its depth: that of params inside link, operation, list and body.
	maxBulkBody  = 4 << 20
	maxBulkDepth = catalog.MaxParamsDepth + 4
	// maxOperations bounds the operations of a bulk request.
	maxOperations = 1000
	// maxResultLinks bounds the links in a response in bytes. Entries after that omit theirs.
	maxResultLinks = 8 << 20
)

// bulkResults are the labels of the metric of bulk operations.
var bulkResults = map[string][]string{
	"create":  {"created", "failed"},
	"update":  {"updated", "unchanged", "failed"},
	"upsert":  {"created", "updated", "unchanged", "failed"},
	"delete":  {"deleted", "failed"},
	"unknown": {"failed"},
}

// exceptBulk responds with 405 to methods that /links/bulk lacks. Without it, chi would take "bulk" for the id of a link.
func exceptBulk(h handler) handler {
	return func(x *requestState, r *http.Request) error {
		if chi.URLParam(r, "id") != "bulk" {
			return h(x, r)
		}
		return refuseMethod(x, r)
	}
}

// writeLinks serves POST /links/bulk.
func (s *Server) writeLinks(x *requestState, r *http.Request, organization catalog.Organization) error {
	key, badKey := readKey(r.Header)
	body, badBody := readBulkBody(x, r)
	var bulk bulkRequest
	if badBody == nil {
		bulk, badBody = readBulk(body)
	}
	if bulk.isAmbiguous {
		body, _ = json.Marshal(string(body)) // the fingerprint compares it as text; a string never fails to be encoded
	}
	if err := together(decode.Join(badKey, refuseConditions(r.Header)), badBody); err != nil {
		return err
	}
	w := store.Write{OrganizationID: organization.ID, Require: x.require, Key: key.of(r, "", body)}
	out, outcomes, err := s.Store.WriteLinks(r.Context(), x.actor, w, bulk.operations, bulk.atomic, renderBulk)
	s.metrics.keyed(w.Key, out, err)
	var failed *store.FailedOperation
	if errors.As(err, &failed) {
		s.metrics.bulkOperation(bulk.operations[failed.Index], store.BulkOutcome{Err: failed.Err})
		return s.awaitDeleted(x, r, organization, bulk.operations[failed.Index].Target, err)
	}
	if err != nil {
		return err
	}
	for i, outcome := range outcomes {
		s.metrics.bulkOperation(bulk.operations[i], outcome)
	}
	s.sendWritten(x, r, out)
	return nil
}

// refuseConditions returns an error for a request with a precondition, for a route that is about several links.
func refuseConditions(header http.Header) error {
	var bad decode.FieldErrors
	for _, name := range []string{"If-Match", "If-None-Match"} {
		if len(header.Values(name)) > 0 {
			bad.Add(name, "is not accepted here: it would not refer to a single link")
		}
	}
	return bad.Err()
}

func readBulkBody(x *requestState, r *http.Request) ([]byte, error) {
	body, err := readBytesWithin(x, r, maxBulkBody, decode.JSON)
	if errors.Is(err, decode.ErrTooLarge) {
		return nil, errBulkTooLarge
	}
	return body, err
}

// readToEnd reads the rest of the body before an error is sent, unless the client has no valid credential. Sockets hold less than the body of
// a bulk request: a client that sends all of it first would find its connection reset, and no response.
func readToEnd(h handler) handler {
	return func(x *requestState, r *http.Request) error {
		err := h(x, r)
		if err != nil && problemOf(err).status != http.StatusUnauthorized && r.ContentLength <= 2*maxBulkBody && r.Header.Get("Expect") == "" {
			_, _ = io.CopyN(io.Discard, r.Body, 2*maxBulkBody) // the response stays the same if this fails
		}
		return err
	}
}

// bulkRequest is the body of POST /links/bulk.
type bulkRequest struct {
	operations []store.BulkOperation
	atomic     bool
	// isAmbiguous: two JSON readers could read an operation in different ways. That operation is malformed.
	isAmbiguous bool
}

// readBulk reads the body. The error is one of validation about the request as a whole; a malformed operation has its own error.
func readBulk(body []byte) (bulk bulkRequest, err error) {
	if bulk.isAmbiguous = strictjson.Check(body, maxBulkDepth) != nil; bulk.isAmbiguous {
		for _, err := range []error{strictjson.CheckForm(body, maxBulkDepth), strictjson.Check(withoutArray(body, "operations"), maxBulkDepth)} {
			if err != nil {
				return bulkRequest{}, err
			}
		}
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(body, &members) != nil || members == nil {
		return bulk, decode.FieldError("body", "must be a JSON object")
	}
	var bad decode.FieldErrors
	var operations []json.RawMessage
	sent, ok := members["operations"]
	switch {
	case !ok:
		bad.Add("operations", "is required")
	case sent[0] != '[' || json.Unmarshal(sent, &operations) != nil:
		bad.Add("operations", "must be an array")
	case len(operations) < 1 || len(operations) > maxOperations:
		bad.Add("operations", fmt.Sprintf("must have 1 to %d entries", maxOperations))
	}
	if atomic, ok := members["atomic"]; ok {
		if bulk.atomic = string(atomic) == "true"; !bulk.atomic && string(atomic) != "false" {
			bad.Add("atomic", "must be true or false")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if name != "operations" && name != "atomic" {
			bad.Add(name, "is not a known field")
		}
	}
	if err := bad.Err(); err != nil {
		return bulkRequest{}, err
	}
	bulk.operations = make([]store.BulkOperation, len(operations))
	for i, operation := range operations {
		var ambiguous *strictjson.Error
		if bulk.isAmbiguous && errors.As(strictjson.Check(operation, maxBulkDepth), &ambiguous) {
			bulk.operations[i].Err = asInvalid(&strictjson.Error{Field: cmp.Or(ambiguous.Field, "op"), Message: ambiguous.Message})
			continue
		}
		bulk.operations[i] = readOperation(operation)
	}
	return bulk, nil
}

// readOperation reads an operation. Its Err is a catalog.Invalid, or decode.ErrTooLarge.
func readOperation(value json.RawMessage) (o store.BulkOperation) {
	var members map[string]json.RawMessage
	if json.Unmarshal(value, &members) != nil || members == nil {
		o.Err = decode.FieldError("op", "is required: an operation must be a JSON object")
		return o
	}
	r := operationReader{members: members}
	kind, _ := r.text("op")
	switch o.Kind = store.OperationKind(kind); o.Kind {
	case store.CreateLink:
		link := r.link()
		if link != nil && len(link) <= decode.MaxBody {
			var err error
			o.Link, err = catalog.ReadLinkAt(link, linkPrefix)
			r.join(err)
		}
	case store.UpdateLink:
		o.Target = r.target()
		o.Patch = r.patch()
	case store.UpsertLink:
		o.Target.ExternalID = r.externalID()
		if _, sent := members["externalId"]; !sent {
			r.bad.Add("externalId", "is required")
		}
		o.Patch = r.patch()
		if r.bad.Errors == nil {
			r.join(checkSameID(o.Patch, o.Target.ExternalID, linkPrefix+"externalId"))
		}
	case store.DeleteLink:
		o.Target = r.target()
	default:
		// Without an op it is unknown which other members belong there.
		o.Kind = ""
		if r.bad.Errors == nil {
			r.bad.Add("op", "must be create, update, upsert or delete")
		}
		o.Err = r.bad.Err()
		return o
	}
	if len(members["link"]) > decode.MaxBody && r.read["link"] {
		o.Err = decode.ErrTooLarge
		return o
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if !r.read[name] {
			r.bad.Add(name, "is not a known field of this op")
		}
	}
	o.Err = r.bad.Err()
	return o
}

// linkPrefix stands before the names of fields of a link in errors of an operation.
const linkPrefix = "link."

// operationReader reads the members of an operation. read are those that it was asked for; any other is superfluous.
type operationReader struct {
	members map[string]json.RawMessage
	read    map[string]bool
	bad     decode.FieldErrors
}

// text returns a string. It adds an error for a member that is not one.
func (r *operationReader) text(name string) (text string, ok bool) {
	value, sent := r.member(name)
	if !sent {
		if name == "op" {
			r.bad.Add(name, "is required")
		}
		return "", false
	}
	if value[0] != '"' || json.Unmarshal(value, &text) != nil {
		r.bad.Add(name, "must be a string")
		return "", false
	}
	return text, true
}

func (r *operationReader) member(name string) (value json.RawMessage, sent bool) {
	if r.read == nil {
		r.read = make(map[string]bool)
	}
	r.read[name] = true
	value, sent = r.members[name]
	return value, sent
}

// target returns the link of an operation that names it by one of its ids.
func (r *operationReader) target() (target store.LinkRef) {
	_, byID := r.members["id"]
	_, byExternalID := r.members["externalId"]
	if id, ok := r.text("id"); ok {
		if target.ID, ok = catalog.ValidUUID(id); !ok {
			r.bad.Add("id", "must be a UUID")
		}
	}
	target.ExternalID = r.externalID()
	switch {
	case byID && byExternalID:
		r.bad.Add("externalId", "must be absent if id is there")
	case !byID && !byExternalID:
		r.bad.Add("id", "or externalId is required")
	}
	return target
}

func (r *operationReader) externalID() string {
	text, ok := r.text("externalId")
	if !ok {
		return ""
	}
	if err := catalog.CheckExternalID(text); err != nil {
		r.bad.Add("externalId", err.Error())
	}
	return text
}

// link returns the member link, nil when it is absent.
func (r *operationReader) link() json.RawMessage {
	value, sent := r.member("link")
	if !sent {
		r.bad.Add("link", "is required")
	}
	return value
}

func (r *operationReader) patch() (patch catalog.Patch) {
	link := r.link()
	if link == nil || len(link) > decode.MaxBody {
		return patch
	}
	patch, err := catalog.ReadPatchAt(link, linkPrefix)
	r.join(err)
	return patch
}

// join adds the fields of a catalog.Invalid.
func (r *operationReader) join(err error) {
	var invalid catalog.Invalid
	if errors.As(err, &invalid) {
		r.bad.Errors = append(r.bad.Errors, invalid.Fields...)
	}
}

// bulkResponse is the response of POST /links/bulk.
type bulkResponse struct {
	Results []bulkResult `json:"results"`
}

// bulkResult is the result of one operation: either result with what follows it, or error.
type bulkResult struct {
	Index  int             `json:"index"`
	Status int             `json:"status"`
	Result store.Result    `json:"result,omitempty"`
	ID     string          `json:"id,omitempty"`
	ETag   string          `json:"etag,omitempty"`
	Link   json.RawMessage `json:"link,omitempty"`
	Error  *operationError `json:"error,omitempty"`
}

// operationError is an envelope without the members that concern the request as a whole.
type operationError struct {
	Error   string            `json:"error"`
	Message string            `json:"message"`
	Details []envelope.Detail `json:"details,omitempty"`
	Code    string            `json:"code,omitempty"`
	Quota   string            `json:"quota,omitempty"`
}

// renderBulk renders the response of POST /links/bulk.
func renderBulk(outcomes []store.BulkOutcome) (store.Response, error) {
	results := make([]bulkResult, len(outcomes))
	size := 0
	for i, o := range outcomes {
		if o.Err != nil {
			p := problemOf(o.Err)
			results[i] = bulkResult{Index: i, Status: p.status, Error: &operationError{http.StatusText(p.status), p.message, p.details, p.code, p.quota}}
			continue
		}
		result := bulkResult{Index: i, Status: http.StatusOK, Result: o.Result, ID: o.Link.ID}
		if o.Result == store.Created {
			result.Status = http.StatusCreated
		}
		if o.Result != store.Deleted {
			link, err := encodeJSON(o.Link.Link)
			if err != nil {
				return store.Response{}, err
			}
			result.ETag = o.Link.ETag()
			if size <= maxResultLinks {
				result.Link = link
			}
			size += len(link)
		}
		results[i] = result
	}
	body, err := encodeJSON(bulkResponse{results})
	return store.Response{Status: http.StatusOK, Body: body}, err
}

// bulkOperation counts an operation of a bulk request.
func (m *metrics) bulkOperation(o store.BulkOperation, outcome store.BulkOutcome) {
	op, result := string(o.Kind), string(outcome.Result)
	if op == "" {
		op = "unknown"
	}
	if outcome.Err != nil {
		result = "failed"
	}
	m.bulkOperations.WithLabelValues(op, result).Inc()
}

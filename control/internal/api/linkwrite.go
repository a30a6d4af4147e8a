package api

import (
	"errors"
	"net/http"
	"net/url"
	"strings"

	"deeplink/control/internal/decode"
	"deeplink/control/internal/relay"
	"deeplink/control/internal/store"
	"deeplink/shared/catalog"
	"deeplink/shared/strictjson"
)

const (
	portalPrefix = "/portal"
	// externalPrefix begins the paths of links by external id.
	externalPrefix = "/links/external/"
	// resultHeader says what a PUT did.
	resultHeader = "Deeplink-Result"
)

// createLink serves POST /links.
func (s *Server) createLink(x *requestState, r *http.Request, organization catalog.Organization) error {
	key, badKey := readKey(r.Header)
	body, badBody := readBody(x, r, decode.JSON)
	var wanted catalog.Link
	if badBody == nil {
		wanted, badBody = catalog.ReadLink(body)
	}
	if err := together(badKey, badBody); err != nil {
		return err
	}
	o := store.Operation{Kind: store.CreateLink, Link: wanted}
	return s.writeLink(x, r, organization, key.of(r, "", body), o, renderLink)
}

// updateLink serves PATCH /links/{id}.
func (s *Server) updateLink(x *requestState, r *http.Request, organization catalog.Organization) error {
	key, badKey := readKey(r.Header)
	conditions, badConditions := readPreconditions(r.Header)
	id, badID := pathID(r)
	body, patch, badPatch := readPatch(x, r)
	if err := together(decode.Join(badKey, badConditions), decode.Join(badID, badPatch)); err != nil {
		return err
	}
	o := store.Operation{Kind: store.UpdateLink, Target: store.LinkRef{ID: id}, Patch: patch, Condition: conditions.ofWrite}
	return s.writeLink(x, r, organization, key.of(r, id, body), o, renderLink)
}

func readPatch(x *requestState, r *http.Request) ([]byte, catalog.Patch, error) {
	body, err := readBody(x, r, decode.JSON, decode.MergePatch)
	if err != nil {
		return nil, catalog.Patch{}, err
	}
	patch, err := catalog.ReadPatch(body)
	return body, patch, err
}

// deleteLink serves DELETE /links/{id}.
func (s *Server) deleteLink(x *requestState, r *http.Request, organization catalog.Organization) error {
	id, badID := pathID(r)
	return s.deleteTarget(x, r, organization, id, store.LinkRef{ID: id}, badID)
}

// deleteTarget deletes a link. parameter is the value of the path's parameter, and badPath its error.
func (s *Server) deleteTarget(
	x *requestState, r *http.Request, organization catalog.Organization, parameter string, target store.LinkRef, badPath error,
) error {
	key, badKey := readKey(r.Header)
	conditions, badConditions := readPreconditions(r.Header)
	if err := together(decode.Join(badKey, badConditions), badPath); err != nil {
		return err
	}
	o := store.Operation{Kind: store.DeleteLink, Target: target, Condition: conditions.ofWrite}
	return s.writeLink(x, r, organization, key.of(r, parameter, nil), o, renderDeletion)
}

// putExternalLink serves PUT /links/external/{externalId}.
func (s *Server) putExternalLink(x *requestState, r *http.Request, organization catalog.Organization) error {
	key, badKey := readKey(r.Header)
	conditions, badConditions := readPreconditions(r.Header)
	externalID, badPath := pathExternalID(r)
	body, patch, badBody := readPatch(x, r)
	if badBody == nil && badPath == nil {
		badBody = checkSameID(patch, externalID, "externalId")
	}
	if err := together(decode.Join(badKey, badConditions), together(badPath, badBody)); err != nil {
		return err
	}
	o := store.Operation{Kind: store.UpsertLink, Target: store.LinkRef{ExternalID: externalID}, Patch: patch, Condition: conditions.ofWrite}
	return s.writeLink(x, r, organization, key.of(r, externalID, body), o, renderUpsert)
}

// checkSameID refuses a patch that sets another external id than that of its target. field is the name of the member in errors.
func checkSameID(patch catalog.Patch, externalID, field string) error {
	link := catalog.Link{ExternalID: &externalID}
	patch.Apply(&link)
	if link.ExternalID == nil || *link.ExternalID != externalID {
		return decode.FieldError(field, "must be the one in the path, or absent")
	}
	return nil
}

// deleteExternalLink serves DELETE /links/external/{externalId}.
func (s *Server) deleteExternalLink(x *requestState, r *http.Request, organization catalog.Organization) error {
	externalID, badPath := pathExternalID(r)
	return s.deleteTarget(x, r, organization, externalID, store.LinkRef{ExternalID: externalID}, badPath)
}

// pathExternalID returns the external id in the path, percent-decoded once. chi decodes a parameter or not, depending on the path.
func pathExternalID(r *http.Request) (string, error) {
	path := r.URL.EscapedPath()
	value, err := url.PathUnescape(path[strings.LastIndexByte(path, '/')+1:])
	if err != nil {
		return "", decode.FieldError("externalId", "is not properly encoded")
	}
	if err := catalog.CheckExternalID(value); err != nil {
		return "", decode.FieldError("externalId", err.Error())
	}
	return value, nil
}

// writeLink runs an operation and responds. key is nil for a request without an idempotency key.
func (s *Server) writeLink(
	x *requestState, r *http.Request, organization catalog.Organization, key *store.IdempotencyKey, o store.Operation, render store.Render,
) error {
	w := store.Write{OrganizationID: organization.ID, Require: x.require, Key: key}
	out, err := s.Store.WriteLink(r.Context(), x.actor, w, o, render)
	s.metrics.keyed(key, out, err)
	if err != nil {
		return s.awaitDeleted(x, r, organization, o.Target, err)
	}
	s.sendWritten(x, r, out)
	return nil
}

// sendWritten waits for the edges, and responds to a write.
func (s *Server) sendWritten(x *requestState, r *http.Request, out store.Written) {
	header := x.Header()
	header.Set(relay.Header, string(s.Relay.AwaitAll(r.Context(), out.Change, out.Also, out.IsCreate)))
	if out.ETag != "" {
		header.Set("ETag", out.ETag)
	}
	if out.Result != "" {
		header.Set(resultHeader, out.Result)
	}
	if out.Replayed {
		header.Set(replayedHeader, "true")
	}
	x.send(out.Status, decode.JSON, out.Body)
}

// renderLink renders the response to POST and PATCH.
func renderLink(l catalog.LinkWithDomain, result store.Result) (store.Response, error) {
	status := http.StatusOK
	if result == store.Created {
		status = http.StatusCreated
	}
	body, err := encodeJSON(l.Link)
	return store.Response{Status: status, Body: body, ETag: l.ETag()}, err
}

// renderUpsert renders the response to PUT.
func renderUpsert(l catalog.LinkWithDomain, result store.Result) (store.Response, error) {
	response, err := renderLink(l, result)
	response.Result = string(result)
	return response, err
}

// renderDeletion renders the response to DELETE.
func renderDeletion(l catalog.LinkWithDomain, _ store.Result) (store.Response, error) {
	body, err := encodeJSON(deletedResponse{ID: l.ID, Deleted: true})
	return store.Response{Status: http.StatusOK, Body: body}, err
}

// together joins the errors of two parts of a request, so that the response has the bad fields of both. Any error but one of validation
// wins, because it is about the whole request.
func together(first, second error) error {
	switch {
	case first == nil:
		return second
	case second == nil:
		return first
	}
	return decode.Join(asInvalid(first), asInvalid(second))
}

// asInvalid returns an error about the syntax of a body as one about a field, and others unchanged.
func asInvalid(err error) error {
	var body *strictjson.Error
	if !errors.As(err, &body) {
		return err
	}
	return catalog.Invalid{Fields: []catalog.FieldError{{Field: bodyField(body), Message: body.Error()}}}
}

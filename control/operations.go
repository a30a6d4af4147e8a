package main

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"deeplink/control/internal/relay"
	"deeplink/shared/catalog"
	"deeplink/shared/qr"
)

// Tags of the document.
const (
	tagLinks   = "Links"
	tagPortal  = "Portal"
	tagService = "Service"
	tagEdge    = "Edge"
)

// keyedErrors are the statuses of every operation with a key.
var keyedErrors = []int{400, 401, 402, 403, 429, 500, 503}

func createLinkOperation() huma.Operation {
	return huma.Operation{
		OperationID: "createLink", Method: http.MethodPost, Path: "/links", Tags: []string{tagLinks},
		Summary:     "Create a link",
		Description: "The new short URL resolves on every edge as soon as the answer says that it is propagated, and within half a second anyhow.",
		Security:    withServerKey(),
		RequestBody: body(schemaLinkCreate, example{Path: "/products/42", Channel: "email", UTMCampaign: "spring"}, mediaJSON),
		Responses: responses(keyedErrors, 404, 408, 409, 413, 415, 428).
			with(http.StatusCreated, propagated(answered(schemaLink, exampleLink(), "The link, without its domain."))),
	}
}

func listLinksOperation() huma.Operation {
	return huma.Operation{
		OperationID: "listLinks", Method: http.MethodGet, Path: "/links", Tags: []string{tagLinks},
		Summary:     "List links",
		Description: "The newest first. A page past the end is empty.",
		Security:    withServerKey(),
		Parameters: []*huma.Param{
			pageParameter(), limitParameter("Links on a page."),
			parameter("isActive", &huma.Schema{Type: huma.TypeBoolean}, "Only active or only inactive links."),
			parameter("search", bounded(0, maxSearch, ""), "Text in title, path or short code, in any case."),
			parameter("tag", bounded(0, catalog.MaxTag, ""), "Only links with this tag."),
			parameter("channel", channel(), "Only links of this channel."),
			parameter("domainId", identifier(""), "Only links on this domain."),
		},
		Responses: responses(keyedErrors).with(http.StatusOK, answered(schemaLinkPage, examplePage(), "A page of links.")),
	}
}

func getLinkOperation() huma.Operation {
	return huma.Operation{
		OperationID: "getLink", Method: http.MethodGet, Path: "/links/{id}", Tags: []string{tagLinks},
		Summary:    "Read a link",
		Security:   withServerKey(),
		Parameters: []*huma.Param{idParameter()},
		Responses:  responses(keyedErrors, 404).with(http.StatusOK, answered(schemaLinkDomain, exampleLinkWithDomain(), "The link.")),
	}
}

func updateLinkOperation() huma.Operation {
	return huma.Operation{
		OperationID: "updateLink", Method: http.MethodPatch, Path: "/links/{id}", Tags: []string{tagLinks},
		Summary: "Update a link",
		Description: "A JSON Merge Patch (RFC 7396): what is absent stays, null clears. Set isActive to false to deactivate the link. " +
			"Once the answer says that it is propagated, no edge serves the link as it was.",
		Security:    withServerKey(),
		Parameters:  []*huma.Param{idParameter()},
		RequestBody: body(schemaLinkPatch, example{UTMCampaign: "summer"}, mediaJSON, mediaMergePatch),
		Responses: responses(keyedErrors, 404, 408, 409, 413, 415).
			with(http.StatusOK, propagated(answered(schemaLink, exampleLink(), "The link, without its domain."))),
	}
}

func deleteLinkOperation() huma.Operation {
	return huma.Operation{
		OperationID: "deleteLink", Method: http.MethodDelete, Path: "/links/{id}", Tags: []string{tagLinks},
		Summary:     "Delete a link",
		Description: "For ever: its short code is free again. Once the answer says that it is propagated, no edge resolves the link.",
		Security:    withServerKey(),
		Parameters:  []*huma.Param{idParameter()},
		Responses: responses(keyedErrors, 404).
			with(http.StatusOK, propagated(answered(schemaDeletion, deletion{ID: exampleLink().ID, Deleted: true}, "The link is gone."))),
	}
}

func drawLinkOperation(p picture) huma.Operation {
	image := described("The QR code of the short URL.", map[string]*huma.MediaType{p.mediaType: {}})
	unchanged := described("The image is the one that If-None-Match names.", nil)
	for _, r := range []*huma.Response{image, unchanged} {
		r.Headers["ETag"] = &huma.Header{Description: "Names the image.", Schema: text("")}
		r.Headers["Cache-Control"] = &huma.Header{Description: "private", Schema: text("")}
	}
	color := &huma.Schema{Type: huma.TypeString, Pattern: "^[0-9A-Fa-f]{6}$"}
	unset := qr.Defaults()
	return huma.Operation{
		OperationID: "drawLink" + strings.ToUpper(p.name), Method: http.MethodGet, Path: "/links/{id}/qr." + p.name, Tags: []string{tagLinks},
		Summary:  "Draw the QR code of a link as " + p.mediaType,
		Security: withServerKey(),
		Parameters: []*huma.Param{
			idParameter(),
			parameter("size", &huma.Schema{Type: huma.TypeInteger, Minimum: new(float64(qr.MinSize)), Maximum: new(float64(qr.MaxSize)), Default: unset.Size}, "Width and height in pixels."),
			parameter("level", &huma.Schema{Type: huma.TypeString, Enum: []any{"L", "M", "Q", "H"}, Default: string(unset.Level)}, "How much damage it can take."),
			parameter("margin", &huma.Schema{Type: huma.TypeInteger, Minimum: new(0.0), Maximum: new(float64(qr.MaxMargin)), Default: unset.Margin}, "Quiet zone in modules."),
			parameter("fg", color, "Colour of the dark modules, black when omitted."),
			parameter("bg", color, "Colour of the rest, white when omitted."),
		},
		Responses: responses(keyedErrors, 404).with(http.StatusOK, image).with(http.StatusNotModified, unchanged),
	}
}

func healthOperation() huma.Operation {
	return huma.Operation{
		OperationID: "health", Method: http.MethodGet, Path: "/healthz", Tags: []string{tagService},
		Summary:   "Tell that this process serves",
		Responses: responses(nil).with(http.StatusOK, answered(schemaHealth, healthy{Status: "ok"}, "It does.")),
	}
}

func withServerKey() []map[string][]string { return []map[string][]string{{securityKey: {}}} }

func parameter(name string, schema *huma.Schema, description string) *huma.Param {
	return &huma.Param{Name: name, In: "query", Description: description, Schema: schema}
}

func pageParameter() *huma.Param {
	return parameter("page", &huma.Schema{Type: huma.TypeInteger, Minimum: new(1.0), Maximum: new(float64(maxPage)), Default: 1}, "Page, counted from 1.")
}

func limitParameter(description string) *huma.Param {
	return parameter("limit", &huma.Schema{Type: huma.TypeInteger, Minimum: new(1.0), Maximum: new(float64(maxLimit)), Default: defaultLimit}, description)
}

func idParameter() *huma.Param {
	return &huma.Param{Name: "id", In: "path", Required: true, Description: "Identifier of the link.", Schema: identifier("")}
}

func body(schema string, example any, mediaTypes ...string) *huma.RequestBody {
	content := make(map[string]*huma.MediaType)
	for _, mediaType := range mediaTypes {
		content[mediaType] = &huma.MediaType{Schema: reference(schema), Example: example}
	}
	return &huma.RequestBody{Required: true, Content: content}
}

// answers are the responses of an operation by status.
type answers map[string]*huma.Response

// responses are the envelopes of the statuses.
func responses(statuses []int, more ...int) answers {
	all := make(answers)
	for _, list := range [][]int{statuses, more} {
		for _, status := range list {
			all[strconv.Itoa(status)] = &huma.Response{Ref: "#/components/responses/" + strconv.Itoa(status)}
		}
	}
	return all
}

func (a answers) with(status int, response *huma.Response) answers {
	a[strconv.Itoa(status)] = response
	return a
}

// answered is a response with a JSON body.
func answered(schema string, example any, description string) *huma.Response {
	return described(description, map[string]*huma.MediaType{mediaJSON: {Schema: reference(schema), Example: example}})
}

// described is a response with the headers of every response.
func described(description string, content map[string]*huma.MediaType) *huma.Response {
	return &huma.Response{Description: description, Content: content, Headers: map[string]*huma.Header{
		"X-Request-Id": {Ref: "#/components/headers/RequestId"}, versionHeader: {Ref: "#/components/headers/Version"},
	}}
}

// propagated adds the header that tells whether every edge knows of the change.
func propagated(r *huma.Response) *huma.Response {
	r.Headers[relay.Header] = &huma.Header{Ref: "#/components/headers/Propagation"}
	return r
}

package catalog

import (
	"bytes"
	"encoding/json"
)

// outputFields are members that the service sets. ReadLink and ReadPatch ignore them, so that a client can send back what it read.
var outputFields = []string{"id", "organizationId", "url", "domain", "createdAt", "updatedAt"}

var linkFields = []field[Link]{
	required(fixed(member("path", func(l *Link) *string { return &l.Path }, readPath))),
	member("domainId", func(l *Link) *string { return &l.DomainID }, readUUID),
	fixed(member("shortCode", func(l *Link) *string { return &l.ShortCode }, readShortCode)),
	member("externalId", func(l *Link) **string { return &l.ExternalID }, readExternalID),
	member("channel", func(l *Link) **string { return &l.Channel }, readChannel),
	member("utmSource", func(l *Link) **string { return &l.UTMSource }, text(MaxUTM)),
	member("utmMedium", func(l *Link) **string { return &l.UTMMedium }, text(MaxUTM)),
	member("utmCampaign", func(l *Link) **string { return &l.UTMCampaign }, text(MaxUTM)),
	member("utmTerm", func(l *Link) **string { return &l.UTMTerm }, text(MaxUTM)),
	member("utmContent", func(l *Link) **string { return &l.UTMContent }, text(MaxUTM)),
	member("fallbackUrl", func(l *Link) **string { return &l.FallbackURL }, readURL),
	object("og", func(l *Link) **OpenGraph { return &l.OG }, []field[OpenGraph]{
		member("title", func(og *OpenGraph) **string { return &og.Title }, text(MaxOGTitle)),
		member("description", func(og *OpenGraph) **string { return &og.Description }, paragraphs(MaxOGDescription)),
		member("imageUrl", func(og *OpenGraph) **string { return &og.ImageURL }, readURL),
	}),
	member("title", func(l *Link) **string { return &l.Title }, text(MaxTitle)),
	member("tags", func(l *Link) *[]string { return &l.Tags }, readTags),
	member("expiry", func(l *Link) **Time { return &l.Expiry }, readTime),
	member("templateId", func(l *Link) **string { return &l.TemplateID }, readTemplateID),
	member("params", func(l *Link) *json.RawMessage { return &l.Params }, readParams),
	memberOr("isActive", func(l *Link) *bool { return &l.IsActive }, true, readBool),
}

// ReadLink reads the body of a create: a Link with the fields that a client sets, others
// zero. DomainID is empty for the default domain, ShortCode for one to be generated. The error is an [Invalid]. body must
// be one JSON value without duplicate names, as strictjson.Check leaves it; it is not retained.
func ReadLink(body []byte) (Link, error) { return ReadLinkAt(body, "") }

// ReadLinkAt is ReadLink for a link inside another body. prefix stands before the names of fields in errors: it is empty or ends in a dot.
func ReadLinkAt(body []byte, prefix string) (Link, error) {
	edits, bad := readObject(body, prefix, linkFields, outputFields, create)
	if bad != nil {
		return Link{}, Invalid{bad}
	}
	link := Link{IsActive: true}
	for _, edit := range edits {
		edit(&link)
	}
	return link, nil
}

// ErrNoPath is the error of a create without a path that was sent as a patch. It is an [Invalid].
var ErrNoPath = ErrNoPathAt("")

// ErrNoPathAt is ErrNoPath for a link inside another body, with the prefix of [ReadLinkAt].
func ErrNoPathAt(prefix string) error {
	return Invalid{[]FieldError{refuse(prefix+"path", errRequired)}}
}

// Patch is a checked merge patch of a link (RFC 7396). The zero Patch changes nothing. It is immutable.
type Patch struct{ edits []edit[Link] }

// ReadPatch reads the body of an update: the fields of [ReadLink], none of them required. The error is an [Invalid].
func ReadPatch(body []byte) (Patch, error) { return ReadPatchAt(body, "") }

// ReadPatchAt is ReadPatch for a patch inside another body, as [ReadLinkAt] is for a link.
func ReadPatchAt(body []byte, prefix string) (Patch, error) {
	edits, bad := readObject(body, prefix, linkFields, outputFields, patch)
	if bad != nil {
		return Patch{}, Invalid{bad}
	}
	return Patch{edits}, nil
}

// Apply changes the link. DomainID is empty afterwards when the patch asks for the default domain. The link shares tags and
// params with the patch and nothing with what it was before.
func (p Patch) Apply(l *Link) {
	for _, edit := range p.edits {
		edit(l)
	}
}

// readParams keeps the object exactly as sent, except for white space: numbers, order and escapes stay.
func readParams(value json.RawMessage) (json.RawMessage, error) {
	switch {
	case value[0] != '{':
		return nil, errNotObject
	case len(value) > MaxParamsBytes:
		return nil, atMost(MaxParamsBytes, "bytes")
	case depth(value) > MaxParamsDepth:
		return nil, atMost(MaxParamsDepth, "levels deep")
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, value); err != nil {
		return nil, errNotObject
	}
	return compact.Bytes(), nil
}

// depth returns how deeply the objects and arrays of a JSON value are nested; a flat object is 1.
func depth(value []byte) int {
	deepest, open, quoted := 0, 0, false
	for i := 0; i < len(value); i++ {
		switch b := value[i]; {
		case quoted && b == '\\':
			i++
		case b == '"':
			quoted = !quoted
		case quoted:
		case b == '{' || b == '[':
			open++
			deepest = max(deepest, open)
		case b == '}' || b == ']':
			open--
		}
	}
	return deepest
}

package transfer

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"deeplink/control/internal/store"
	"deeplink/shared/catalog"
)

const identityOrganization = "0190b2a0-0000-7000-8000-00000000000a"

// The texts and codes are those of links in databases. A change here means that importing a file again creates its links a second time.
func TestImportIdentityVersion1IsFixed(t *testing.T) {
	t.Parallel()
	const nothingSet = `"channel":null,"utmSource":null,"utmMedium":null,"utmCampaign":null,"utmTerm":null,"utmContent":null,"fallbackUrl":null,"og":null,` +
		`"title":null,"tags":null,"expiry":null,"templateId":null,"params":null,"isActive":true,"createdAt":"0001-01-01T00:00:00.000Z","updatedAt":"0001-01-01T00:00:00.000Z"}`
	for _, test := range []struct{ name, host, row, text, code string }{
		{
			name: "only a path", row: `{"path":"/plain"}`,
			text: `{"id":"","organizationId":"","domainId":"","shortCode":"","url":"","path":"/plain",` + nothingSet, code: "t3sf7zr4jq8w",
		},
		{
			name: "a host, compared without regard to case", host: "Go.Acme.Example", row: `{"path":"/plain"}`,
			text: `{"id":"","organizationId":"","domainId":"","shortCode":"","url":"","path":"/plain",` + nothingSet, code: "x4n7h8x3bwpt",
		},
		{
			name: "every field that a row can set",
			row: `{"path":"a?b=<&>#c","domainId":"0190B2A0-0000-7000-8000-00000000000B","channel":"paid_social","utmSource":"a,b","utmMedium":"\"q\"\\","utmCampaign":"c",
				"utmTerm":"=1+1","utmContent":" e ","fallbackUrl":"https://x.example/%3C%3E?a=b&c=%20","og":{"title":"<b>","description":"one\r\ntwo\tthree","imageUrl":"https://x.example/i.png"},
				"title":"Ünïcode 😀 \u2028\u2029\ufffd","tags":["a,b","c \"d\"","<e>"],"expiry":"2031-01-31T13:00:00.123456+01:00","templateId":"t-1",
				"params":{"b":1.0, "a":"<&>\u2028\b\f ` + "\u2029" + `","c":12345678901234567890,"d":{"e":[null,true]}},"isActive":false}`,
			text: `{"id":"","organizationId":"","domainId":"0190b2a0-0000-7000-8000-00000000000b","shortCode":"","url":"","path":"a?b=\u003c\u0026\u003e#c","channel":"paid_social",` +
				`"utmSource":"a,b","utmMedium":"\"q\"\\","utmCampaign":"c","utmTerm":"=1+1","utmContent":" e ","fallbackUrl":"https://x.example/%3C%3E?a=b\u0026c=%20",` +
				`"og":{"title":"\u003cb\u003e","description":"one\r\ntwo\tthree","imageUrl":"https://x.example/i.png"},"title":"Ünïcode 😀 \u2028\u2029` + "\ufffd" + `",` +
				`"tags":["a,b","c \"d\"","\u003ce\u003e"],"expiry":"2031-01-31T12:00:00.123Z","templateId":"t-1",` +
				`"params":{"b":1.0,"a":"\u003c\u0026\u003e\u2028\b\f \u2029","c":12345678901234567890,"d":{"e":[null,true]}},"isActive":false,` +
				`"createdAt":"0001-01-01T00:00:00.000Z","updatedAt":"0001-01-01T00:00:00.000Z"}`,
			code: "qz8fmzrsq8fx",
		},
		{
			name: "empty lists and objects", row: `{"path":"/empty","tags":[],"params":{},"og":{"description":"only"}}`,
			text: `{"id":"","organizationId":"","domainId":"","shortCode":"","url":"","path":"/empty",` + strings.NewReplacer(`"og":null`, `"og":{"title":null,"description":"only","imageUrl":null}`,
				`"tags":null`, `"tags":[]`, `"params":null`, `"params":{}`).Replace(nothingSet),
			code: "ycspspx9swue",
		},
		{
			name: "null as if it were not sent", row: `{"path":"/n","tags":null,"og":{},"isActive":null}`,
			text: `{"id":"","organizationId":"","domainId":"","shortCode":"","url":"","path":"/n",` + nothingSet, code: "k5xg6fxvycwj",
		},
	} {
		link, err := sourceRow{body: []byte(test.row), host: test.host}.validate(identityOrganization)
		if err != nil {
			t.Fatalf("%s: %v", test.name, err)
		}
		if link.ShortCode != test.code {
			t.Errorf("%s: code %s, expected %s", test.name, link.ShortCode, test.code)
		}
		link.ShortCode = ""
		expected := identityOrganization + "\n" + strings.ToLower(test.host) + "\n" + test.text
		if got := string(identityV1(identityOrganization, test.host, link)); got != expected {
			t.Errorf("%s: text\n%s\nexpected\n%s", test.name, got, expected)
		}
	}
}

// The organization and its links are as an import by an earlier release left them.
func TestImportRecognizesLinksOfAnEarlierRelease(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	o := store.CreatedOrganization{Organization: catalog.Organization{ID: identityOrganization, OrgKey: "idv1"}}
	w.Exec(`insert into organizations (id, org_key, name, plan) values ($1, $2, 'Acme', 'scale')`, o.ID, o.OrgKey)
	w.Exec(`insert into app_configs (organization_id, fallback_url) values ($1, 'https://acme.example')`, o.ID)
	w.Exec(`insert into domains (id, organization_id, status) values (gen_random_uuid(), $1, 'verified')`, o.ID)
	w.Exec(`insert into domains (id, organization_id, host, status) values (gen_random_uuid(), $1, 'go.acme.example', 'verified')`, o.ID)
	w.Exec(`insert into links (id, organization_id, domain_id, short_code, path, og_description, tags, params)
		select gen_random_uuid(), $1, d.id, l.code, l.path, l.description, l.tags, l.params
		from domains d join (values (null, 't3sf7zr4jq8w', '/plain', null, null, null::json), ('go.acme.example', 'x4n7h8x3bwpt', '/plain', null, null, null),
			(null, 'ycspspx9swue', '/empty', 'only', '{}'::text[], '{}')) as l (host, code, path, description, tags, params) on d.host is not distinct from l.host
		where d.organization_id = $1`, o.ID)
	got, refused := w.imports(o, NDJSON, `{"path":"/plain"}
		{"path":"/plain","domain":{"host":"Go.Acme.Example"}}
		{"path":"/empty","tags":[],"params":{},"og":{"description":"only"}}`)
	if diff := cmp.Diff(Result{Rows: 3, Unchanged: 3}, got); diff != "" {
		t.Errorf("(-expected +got):\n%s\n%v", diff, refused)
	}
}

// The link has every field set, whatever fields Link has: one that is added to it must not show in the text of version 1.
func TestFieldAddedToLinkLeavesImportIdentityVersion1(t *testing.T) {
	t.Parallel()
	const expected = identityOrganization + "\n\n" + `{"id":"the ID","organizationId":"the OrganizationID","domainId":"the DomainID","shortCode":"the ShortCode","url":"the URL",` +
		`"path":"the Path","channel":"the Channel","utmSource":"the UTMSource","utmMedium":"the UTMMedium","utmCampaign":"the UTMCampaign","utmTerm":"the UTMTerm",` +
		`"utmContent":"the UTMContent","fallbackUrl":"the FallbackURL","og":{"title":"the Title","description":"the Description","imageUrl":"the ImageURL"},"title":"the Title",` +
		`"tags":["the Tags"],"expiry":"2031-01-31T12:00:00.123Z","templateId":"the TemplateID","params":{"Params":1},"isActive":true,` +
		`"createdAt":"2031-01-31T12:00:00.123Z","updatedAt":"2031-01-31T12:00:00.123Z"}`
	var link catalog.Link
	setAll(t, reflect.ValueOf(&link).Elem(), "link")
	if got := string(identityV1(identityOrganization, "", link)); got != expected {
		t.Errorf("text\n%s\nexpected\n%s", got, expected)
	}
	for externalID, expected := range map[string]string{"": "jhvgepv9zkff", "sku-1": "ndavb4htt3tf"} {
		if link.ExternalID = nil; externalID != "" {
			link.ExternalID = &externalID
		}
		if got := deriveCode(identityOrganization, "Go.Acme.Example", link); got != expected {
			t.Errorf("external id %q: code %s, expected %s", externalID, got, expected)
		}
	}
}

// setAll sets a value and all that it consists of to values that follow from their names.
func setAll(t *testing.T, v reflect.Value, name string) {
	t.Helper()
	switch {
	case v.Type() == reflect.TypeFor[catalog.Time]():
		v.Set(reflect.ValueOf(catalog.Time{Time: time.Date(2031, 1, 31, 12, 0, 0, 123e6, time.UTC)}))
	case v.Type() == reflect.TypeFor[json.RawMessage]():
		v.SetBytes([]byte(`{"` + name + `":1}`))
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		setAll(t, v.Elem(), name)
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			setAll(t, v.Field(i), v.Type().Field(i).Name)
		}
	case v.Kind() == reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		setAll(t, v.Index(0), name)
	case v.Kind() == reflect.String:
		v.SetString("the " + name)
	case v.Kind() == reflect.Bool:
		v.SetBool(true)
	case v.CanInt():
		v.SetInt(1)
	default:
		t.Fatalf("%s has a type that this test cannot set: %s", name, v.Type())
	}
}

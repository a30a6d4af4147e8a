package session

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

func TestShapesOfClaimsOfCommonProviders(t *testing.T) {
	t.Parallel()
	many := make([]string, 150)
	for i := range many {
		many[i] = fmt.Sprintf("%q", fmt.Sprint("o", i))
	}
	for _, c := range []struct {
		name            string
		org, role, orgs selector
		claims          string
		expected        []Membership
		refused         bool
	}{
		{name: "Keycloak", orgs: "organization", role: "/resource_access/console/roles",
			claims:   `{"organization":{"acme":{"id":"4f1c"},"beta":{}},"resource_access":{"console":{"roles":["uma","admin"]}}}`,
			expected: []Membership{{"4f1c", Admin}, {"beta", Admin}}},
		{name: "Keycloak, list", orgs: "organization", role: "/resource_access/console/roles",
			claims:   `{"organization":["acme"],"resource_access":{"console":{"roles":["member","owner",1]}}}`,
			expected: []Membership{{"acme", Owner}}},
		{name: "Auth0", role: "https://acme.example/role", claims: `{"org_id":"org_9x","https://acme.example/role":"owner"}`, expected: []Membership{{"org_9x", Owner}}},
		{name: "Clerk", claims: `{"o":{"id":"org_2f","rol":"admin"}}`, expected: []Membership{{"org_2f", Admin}}},
		{name: "Clerk, no role", claims: `{"org_id":"org_2f"}`, expected: []Membership{{"org_2f", NoRole}}},
		{name: "Entra ID", org: "tid", role: "/roles", claims: `{"tid":"72f9","roles":["member","owner"]}`, expected: []Membership{{"72f9", Owner}}},
		{name: "objects", claims: `{"org_role":"member","organizations":[{"id":"a","role":"org:owner"},{"id":"b","rol":"admin"},{"id":"c","roles":["x","admin"]},{"id":"d"},{"id":"a"},{"id":""},{"id":1},7,null]}`,
			expected: []Membership{{"a", Owner}, {"b", Admin}, {"c", Admin}, {"d", Member}}},
		{name: "unknown role", claims: `{"org_role":"owner","organizations":[{"id":"a","role":"boss"},{"id":"b","roles":[]}]}`, expected: []Membership{{"a", NoRole}, {"b", NoRole}}},
		{name: "escaped pointer", orgs: "/a~1b/~0/1", claims: `{"a/b":{"~":[[],["x"]]}}`, expected: []Membership{{"x", NoRole}}},
		{name: "none", claims: `{}`},
		{name: "no list", claims: `{"organizations":"acme"}`},
		{name: "long id", claims: `{"organizations":["` + strings.Repeat("a", 256) + `","` + strings.Repeat("b", 255) + `"]}`, expected: []Membership{{strings.Repeat("b", 255), NoRole}}},
		{name: "id of 255 characters that have two bytes", claims: `{"organizations":["` + strings.Repeat("ä", 255) + `","` + strings.Repeat("ä", 256) + `"]}`, expected: []Membership{{strings.Repeat("ä", 255), NoRole}}},
		{name: "role list in a plain claim", claims: `{"org_id":"a","org_role":["owner"]}`, refused: true},
		{name: "role object behind a pointer", role: "/r", claims: `{"org_id":"a","r":{"owner":true}}`, refused: true},
		{name: "organization list in a plain claim", claims: `{"org_id":["a"]}`, refused: true},
		{name: "organization list behind a pointer", org: "/o", claims: `{"o":["a"]}`, refused: true},
	} {
		v := &Verifier{organizationClaim: "org_id", roleClaim: "org_role", organizationsClaim: "organizations"}
		for to, from := range map[*selector]selector{&v.organizationClaim: c.org, &v.roleClaim: c.role, &v.organizationsClaim: c.orgs} {
			if from != "" {
				*to = from
			}
		}
		var claims map[string]any
		if err := json.Unmarshal([]byte(c.claims), &claims); err != nil {
			t.Fatal(err)
		}
		active, err := v.active(claims)
		if (err != nil) != c.refused {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if c.refused {
			continue
		}
		got := memberships(v.organizationsClaim.in(claims), active.Role)
		if active.Organization != "" {
			got = []Membership{active}
		}
		if !reflect.DeepEqual(got, c.expected) {
			t.Errorf("%s: %v, expected %v", c.name, got, c.expected)
		}
	}
	var claims any
	if err := json.Unmarshal([]byte("["+strings.Join(many, ",")+"]"), &claims); err != nil {
		t.Fatal(err)
	}
	if n := len(memberships(claims, NoRole)); n != maxMemberships {
		t.Errorf("%d of 150 entries count, expected %d", n, maxMemberships)
	}
	for _, pointer := range []string{"/~", "/a~2", "/~01~"} {
		if CheckClaims(pointer) == nil {
			t.Errorf("%q is accepted as a JSON Pointer", pointer)
		}
	}
	if err := CheckClaims("a~b", "/a~0~1", "", "/"); err != nil {
		t.Error(err)
	}
}

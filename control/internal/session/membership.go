package session

import (
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxMemberships is how many entries of a claim with several organizations count, and maxOrganization the length of their ids, in characters.
const (
	maxMemberships  = 100
	maxOrganization = 255
)

// selector finds a claim: it is the name of a top-level claim, or, if it begins with a slash, a JSON Pointer (RFC 6901) into the claims.
type selector string

var errPointer = errors.New("a claim that begins with / must be a JSON Pointer (RFC 6901): ~ only in ~0 and ~1")

// check returns an error for a malformed JSON Pointer.
func (s selector) check() error {
	if s.isPointer() && strings.Contains(strings.NewReplacer("~0", "", "~1", "").Replace(string(s)), "~") {
		return errPointer
	}
	return nil
}

func (s selector) isPointer() bool { return strings.HasPrefix(string(s), "/") }

// in returns the value of the claim, or nil if it is absent or null.
func (s selector) in(claims map[string]any) any {
	if !s.isPointer() {
		return claims[string(s)]
	}
	var value any = claims
	for _, escaped := range strings.Split(string(s), "/")[1:] {
		token := strings.ReplaceAll(strings.ReplaceAll(escaped, "~1", "/"), "~0", "~")
		switch v := value.(type) {
		case map[string]any:
			value = v[token]
		case []any:
			index, err := strconv.Atoi(token)
			if err != nil || strconv.Itoa(index) != token || index < 0 || index >= len(v) {
				return nil
			}
			value = v[index]
		default:
			return nil
		}
	}
	return value
}

// active returns the active organization and the role in it: from the two configured claims, from the nested form o: {id, rol},
// or from both. If the two differ, the meaning is ambiguous and the token is rejected. Without an active organization it returns the role of
// the role claim alone.
func (v *Verifier) active(claims map[string]any) (Membership, error) {
	// Some providers use o for another purpose: a value without id is ignored.
	nested, _ := claims["o"].(map[string]any)
	if nested["id"] == nil {
		nested = nil
	}
	organization, err := agreed(v.organizationClaim.in(claims), nested["id"])
	if err != nil {
		return Membership{}, err
	}
	role := v.roleClaim.in(claims)
	if roles, ok := role.([]any); ok && v.roleClaim.isPointer() {
		role = string(highest(roles))
	}
	named, err := agreed(unprefixed(role), unprefixed(nested["rol"]))
	return Membership{Organization: organization, Role: roleOf(named)}, err
}

// agreed returns the common text of two claims. Either may be absent.
func agreed(values ...any) (string, error) {
	agreed := ""
	for _, value := range values {
		text, ok := value.(string)
		switch {
		case value != nil && !ok:
			return "", malformed
		case agreed != "" && text != "" && text != agreed:
			return "", twoMeanings
		case text != "":
			agreed = text
		}
	}
	return agreed, nil
}

// unprefixed returns the name of a role without the prefix that some providers add.
func unprefixed(role any) any {
	if text, ok := role.(string); ok {
		return strings.TrimPrefix(text, "org:")
	}
	return role
}

// highest returns the highest known role among the entries. Others are ignored: providers list roles of other applications, too.
func highest(roles []any) Role {
	best := NoRole
	for _, entry := range roles {
		if role := roleOf(text(unprefixed(entry))); role.rank() > best.rank() {
			best = role
		}
	}
	return best
}

// memberships reads a claim with several organizations: an array of ids, an array of objects with an id, or an object of such objects, whose
// member names are the ids of those without one. An entry without a role has the role otherwise. Entries of other forms are ignored.
func memberships(claim any, otherwise Role) []Membership {
	var all []Membership
	add := func(name string, entry any) {
		m := Membership{Organization: name, Role: otherwise}
		switch e := entry.(type) {
		case string:
			if name == "" {
				m.Organization = e
			}
		case map[string]any:
			if e["id"] != nil {
				m.Organization = text(e["id"])
			}
			m.Role = entryRole(e, otherwise)
		default:
			return
		}
		if n := utf8.RuneCountInString(m.Organization); n < 1 || n > maxOrganization || slices.ContainsFunc(all, func(o Membership) bool { return o.Organization == m.Organization }) {
			return
		}
		all = append(all, m)
	}
	switch c := claim.(type) {
	case []any:
		for _, entry := range c[:min(len(c), maxMemberships)] {
			add("", entry)
		}
	case map[string]any:
		// In the order of the names, so that the same token always has the same memberships.
		names := slices.Sorted(maps.Keys(c))
		for _, name := range names[:min(len(names), maxMemberships)] {
			if entry, ok := c[name].(map[string]any); ok {
				add(name, entry)
			}
		}
	}
	return all
}

// entryRole returns the role in an entry with the members role, rol or roles.
func entryRole(entry map[string]any, otherwise Role) Role {
	for _, member := range []string{"role", "rol"} {
		if entry[member] != nil {
			return roleOf(text(unprefixed(entry[member])))
		}
	}
	if roles, ok := entry["roles"].([]any); ok {
		return highest(roles)
	}
	return otherwise
}

// text returns a string claim, or "" for a claim of another type.
func text(value any) string {
	s, _ := value.(string)
	return s
}

package session

import (
	"errors"
	"log/slog"
	"net/netip"
	"net/url"
)

// Options define which tokens are accepted.
type Options struct {
	// KeysURL is the URL of the provider's keys as a JWK Set (RFC 7517). It must be https, or http to a loopback address: an attacker who
	// can change the response can sign tokens.
	KeysURL string
	// KeysURLNow, if not nil, is called before each fetch in place of KeysURL, and may return "" while the URL is unknown. The caller validates
	// the URL as for KeysURL.
	KeysURLNow func() string
	// Issuer is the required value of iss.
	Issuer string
	// Audience must be in aud. Empty: aud is not checked.
	Audience string
	// OrganizationClaim and RoleClaim are names of claims, or JSON Pointers if they begin with a slash. Empty: org_id and org_role.
	OrganizationClaim, RoleClaim string
	// OrganizationsClaim is the same for the claim that lists several organizations, which only Identify reads. Empty: organizations.
	OrganizationsClaim string
	// Log receives a record when the keys change or cannot be fetched.
	Log *slog.Logger
}

// Check validates the options.
func (o Options) Check() error {
	switch {
	case o.KeysURLNow == nil && !SecureURL(o.KeysURL):
		return errors.New("the URL of the identity provider's keys must be https://, " +
			"or http:// and a loopback address, without user or fragment")
	case o.Issuer == "":
		return errors.New("the identity provider's issuer must be set")
	}
	return CheckClaims(o.OrganizationClaim, o.RoleClaim, o.OrganizationsClaim)
}

// CheckClaims returns an error for a claim that is a malformed JSON Pointer.
func CheckClaims(claims ...string) error {
	for _, claim := range claims {
		if err := selector(claim).check(); err != nil {
			return err
		}
	}
	return nil
}

// SecureURL reports whether a URL is https, or http to a loopback address, without user and fragment: what an attacker on the network cannot
// change.
func SecureURL(address string) bool {
	u, err := url.Parse(address)
	return err == nil && u.Hostname() != "" && u.User == nil && u.Fragment == "" &&
		(u.Scheme == "https" || u.Scheme == "http" && loopback(u.Hostname()))
}

func loopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}

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
	// Issuer is the required value of iss.
	Issuer string
	// Audience must be in aud. Empty: aud is not checked.
	Audience string
	// OrganizationClaim and RoleClaim are the names of claims. Empty: org_id and org_role.
	OrganizationClaim, RoleClaim string
	// Log receives a record when the keys change or cannot be fetched.
	Log *slog.Logger
}

// Check validates the options.
func (o Options) Check() error {
	keys, err := url.Parse(o.KeysURL)
	switch {
	case err != nil || keys.Hostname() == "" || keys.User != nil || keys.Fragment != "" ||
		keys.Scheme != "https" && (keys.Scheme != "http" || !loopback(keys.Hostname())):
		return errors.New("the URL of the identity provider's keys must be https://, " +
			"or http:// and a loopback address, without user or fragment")
	case o.Issuer == "":
		return errors.New("the identity provider's issuer must be set")
	}
	return nil
}

func loopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}

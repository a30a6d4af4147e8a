package session

import (
	"errors"
	"log/slog"
	"net/netip"
	"net/url"
)

// Options say whose tokens are verified.
type Options struct {
	// KeysURL is where the provider publishes its keys as a JWK Set (RFC 7517). It must be https, or http on this machine itself:
	// whoever can change the answer can sign tokens.
	KeysURL string
	// Issuer is what iss must be, exactly.
	Issuer string
	// Audience must be named by aud. Empty: aud is not looked at.
	Audience string
	// OrganizationClaim and RoleClaim are the names of claims. Empty: org_id and org_role.
	OrganizationClaim, RoleClaim string
	// Log is told when the keys change and when they can't be fetched.
	Log *slog.Logger
}

// Check returns what is wrong with the options.
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

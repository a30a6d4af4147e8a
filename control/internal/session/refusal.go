package session

// refusal is the reason for rejecting a token, as an error and as a metric label: one of the constants below, never part of the token.
type refusal string

const (
	tooLong        refusal = "too_long"
	malformed      refusal = "malformed"
	badAlgorithm   refusal = "algorithm"
	criticalHeader refusal = "critical_header"
	noKeyID        refusal = "no_key_id"
	noKeysYet      refusal = "no_keys_yet"
	unknownKey     refusal = "unknown_key"
	badSignature   refusal = "signature"
	wrongIssuer    refusal = "issuer"
	wrongAudience  refusal = "audience"
	noExpiry       refusal = "no_expiry"
	expired        refusal = "expired"
	notYetValid    refusal = "not_yet_valid"
	issuedLater    refusal = "issued_later"
	livesTooLong   refusal = "lifetime"
	twoMeanings    refusal = "two_meanings"
	noOrganization refusal = "no_organization"
)

var refusals = []refusal{
	tooLong, malformed, badAlgorithm, criticalHeader, noKeyID, noKeysYet, unknownKey, badSignature, wrongIssuer, wrongAudience,
	noExpiry, expired, notYetValid, issuedLater, livesTooLong, twoMeanings, noOrganization,
}

func (r refusal) Error() string { return r.Unwrap().Error() + ": " + string(r) }

// Unwrap returns ErrInvalid, ErrNoOrganization or ErrUnavailable.
func (r refusal) Unwrap() error {
	switch r {
	case noKeysYet:
		return ErrUnavailable
	case noOrganization:
		return ErrNoOrganization
	}
	return ErrInvalid
}

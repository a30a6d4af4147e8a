package store

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"deeplink/shared/apikey"
	"deeplink/shared/catalog"
)

// Credential is the result of authenticating an API key.
type Credential struct {
	KeyID        string
	DisplayKey   string
	Tier         apikey.Tier
	Organization catalog.Organization
}

const authenticateSQL = `
	select k.id, k.display_key, k.tier, ` + organizationColumns + `
	from api_keys k join organizations o on o.id = k.organization_id` + keyIsValid

// credentialFields returns the scan targets for the columns of authenticateSQL.
func credentialFields(c *Credential) []any {
	return append([]any{&c.KeyID, &c.DisplayKey, &c.Tier}, organizationFields(&c.Organization)...)
}

// Authenticate returns the credential of the key with the hash, or ErrNotFound for a key that is unknown or no longer valid. The caller
// checks suspension, tier and plan. Nothing is cached: a replaced key stops working at once.
func (s *Store) Authenticate(ctx context.Context, hash [32]byte) (Credential, error) {
	c, _, err := s.keys.do(ctx, hash, LinkRef{})
	return c, err
}

const validKeysSQL = `
	select k.hash from api_keys k join organizations o on o.id = k.organization_id
	where k.hash = any($1) and (k.valid_until is null or k.valid_until > clock_timestamp()) and not o.suspended`

// ValidKeys returns the hashes that belong to valid keys of organizations that are not suspended, with one query.
func (s *Store) ValidKeys(ctx context.Context, hashes [][32]byte) (valid map[[32]byte]bool, err error) {
	sent := make([][]byte, len(hashes))
	for i := range hashes {
		sent[i] = hashes[i][:]
	}
	err = retry("look up keys", func() error {
		valid = make(map[[32]byte]bool)
		rows, err := s.pool.Query(ctx, validKeysSQL, sent)
		if err != nil {
			return err
		}
		var hash []byte
		_, err = pgx.ForEachRow(rows, []any{&hash}, func() error {
			valid[[32]byte(hash)] = true
			return nil
		})
		return err
	})
	return valid, err
}

// keyAndLinkSQL is authenticateSQL with a link of the organization, whose columns are null if there is none.
const (
	keyAndLinksSQL = `
	select k.id, k.display_key, k.tier, ` + organizationColumns + `, ` + linkColumns + `
	from api_keys k join organizations o on o.id = k.organization_id
	left join (links l join domains d on d.id = l.domain_id) on l.organization_id = k.organization_id and `
	keyIsValid = `
	where k.hash = $1 and (k.valid_until is null or k.valid_until > clock_timestamp())`

	keyAndLinkSQL             = keyAndLinksSQL + `l.id = $2` + keyIsValid
	keyAndLinkByExternalIDSQL = keyAndLinksSQL + `l.external_id = $2` + keyIsValid
)

// AuthenticateWithLink is Authenticate, and in the same statement reads the organization's link, which has an id or an external id. A nil
// link means that there is none.
func (s *Store) AuthenticateWithLink(ctx context.Context, hash [32]byte, target LinkRef) (Credential, *catalog.LinkWithDomain, error) {
	return s.keys.do(ctx, hash, target)
}

// NewKey is a key with its raw form. The portal returns the raw form only once, when the key is created.
type NewKey struct {
	ID         string       `json:"-"`
	Tier       apikey.Tier  `json:"tier"`
	RawKey     string       `json:"rawKey"`
	Prefix     string       `json:"prefix"`
	DisplayKey string       `json:"displayKey"`
	CreatedAt  catalog.Time `json:"createdAt"`
}

const currentKeysSQL = `select tier, display_key from api_keys where organization_id = $1 and valid_until is null`

// Keys returns the masked form of the organization's current key of each tier that has one.
func (s *Store) Keys(ctx context.Context, orgID string) (display map[apikey.Tier]string, err error) {
	err = retry("read keys", func() error {
		display = make(map[apikey.Tier]string)
		rows, err := s.pool.Query(ctx, currentKeysSQL, orgID)
		if err != nil {
			return err
		}
		var tier apikey.Tier
		var masked string
		_, err = pgx.ForEachRow(rows, []any{&tier, &masked}, func() error {
			display[tier] = masked
			return nil
		})
		return err
	})
	return display, err
}

const dropKeysSQL = `
	delete from api_keys where organization_id = $1 and tier = $2 and (valid_until is not null or $3::interval <= interval '0')`

const endKeySQL = `
	update api_keys set valid_until = clock_timestamp() + $3::interval where organization_id = $1 and tier = $2`

// ReplaceKey creates a new key of the tier. The replaced key stays valid for grace, which may be zero, and earlier keys end at once: at
// most two keys of a tier are ever valid. Errors: ErrNotFound when the organization does not exist, and that of
// require.
func (s *Store) ReplaceKey(
	ctx context.Context, actor Actor, orgID string, require Requirement, tier apikey.Tier, grace time.Duration,
) (NewKey, error) {
	var key NewKey
	err := s.write(ctx, actor, orgID, "replace a key", func(tx *transaction) error {
		// Serialized: otherwise each of two concurrent replacements would keep the key that the other created.
		if err := lockOrganization(ctx, tx, orgID, require); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, dropKeysSQL, orgID, tier, grace); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, endKeySQL, orgID, tier, grace); err != nil {
			return err
		}
		var err error
		if key, err = insertKey(ctx, tx, orgID, tier); err != nil {
			return err
		}
		_, err = tx.finish(ctx, entry{KeyRegenerated, orgID, keyTarget, key.ID,
			map[string]any{"tier": tier, "displayKey": key.DisplayKey, "graceSeconds": int64(grace / time.Second)}})
		return err
	})
	if err != nil {
		return NewKey{}, err
	}
	return key, nil
}

const insertKeySQL = `
	insert into api_keys (id, organization_id, tier, hash, display_key, created_at) values ($1, $2, $3, $4, $5, clock_timestamp())
	returning created_at`

func insertKey(ctx context.Context, tx *transaction, orgID string, tier apikey.Tier) (NewKey, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return NewKey{}, err
	}
	raw := apikey.New(tier)
	hash := apikey.Hash(raw)
	key := NewKey{ID: id.String(), Tier: tier, RawKey: raw, Prefix: apikey.Prefix(tier), DisplayKey: apikey.Display(raw)}
	err = tx.QueryRow(ctx, insertKeySQL, key.ID, orgID, tier, hash[:], key.DisplayKey).Scan(&key.CreatedAt.Time)
	return key, err
}

-- +goose Up
create table organizations (
    id          uuid primary key,
    org_key     text collate "C" not null unique check (org_key ~ '^[a-z0-9]{4}$' and org_key not in ('data', 'docs')),
    name        text not null check (length(name) between 1 and 255),
    external_id text collate "C" unique check (length(external_id) between 1 and 255),
    plan        text check (plan in ('free', 'starter', 'growth', 'scale', 'enterprise')),
    suspended   boolean not null default false,
    created_at  timestamptz(3) not null default now()
);
comment on table organizations is 'A tenant: owns links, domains, keys and one app config.';
comment on column organizations.org_key is 'First path segment of its short URLs on the shared host. Never changes: the edges name the organization by it.';
comment on column organizations.external_id is 'The id under which the identity provider knows it.';
comment on column organizations.plan is 'Null until one is selected.';
comment on column organizations.suspended is 'While true, management routes answer 401 and its links 410.';

create table app_configs (
    organization_id                  uuid primary key references organizations (id) on delete cascade,
    ios_bundle_id                    text,
    ios_team_id                      text,
    ios_app_store_id                 text,
    ios_scheme                       text,
    android_package_name             text,
    android_sha256_cert_fingerprints text[],
    android_scheme                   text,
    fallback_url                     text,
    html_error_pages                 boolean not null default false,
    updated_at                       timestamptz(3) not null default now()
);
comment on table app_configs is 'How the apps of an organization are opened, and where a click without one goes.';
comment on column app_configs.fallback_url is 'Destination of links which have no fallback URL of their own.';
comment on column app_configs.html_error_pages is 'Whether a browser navigating to a dead short URL gets a page instead of JSON.';

create table domains (
    id                 uuid primary key,
    organization_id    uuid not null references organizations (id),
    host               text collate "C" unique
                       check (host ~ '^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)+$' and length(host) <= 253),
    status             text not null check (status in ('pending', 'verified')),
    verification_token text,
    created_at         timestamptz(3) not null default now(),
    unique (organization_id, id),
    check (host is not null or status = 'verified')
);
create unique index domains_shared on domains (organization_id) where host is null;
comment on table domains is 'Where links live: one row per organization for the shared host, one per custom domain.';
comment on column domains.host is 'Custom host name in lower case, IDN as punycode. Null: the shared host, the default domain.';
comment on column domains.status is 'Only verified domains resolve.';
comment on column domains.verification_token is 'Expected in the TXT record _deeplink.{host}.';

create table api_keys (
    id              uuid primary key,
    organization_id uuid not null references organizations (id) on delete cascade,
    tier            text not null check (tier in ('SERVER', 'CLIENT')),
    hash            bytea not null unique check (length(hash) = 32),
    display_key     text not null,
    valid_until     timestamptz,
    created_at      timestamptz(3) not null default now()
);
create index api_keys_organization on api_keys (organization_id, tier, created_at desc);
comment on table api_keys is 'Credentials of backends (SERVER) and mobile SDKs (CLIENT). At most two of a tier are valid at any time.';
comment on column api_keys.hash is 'SHA-256 of the raw key; the raw key is stored nowhere.';
comment on column api_keys.display_key is 'Prefix, ellipsis and last four characters, for people.';
comment on column api_keys.valid_until is 'End of the grace of a replaced key; null for the current one.';

grant select, insert, update on organizations to deeplink_control;
grant select, insert, update, delete on app_configs, domains, api_keys to deeplink_control;
grant select (id, org_key, suspended) on organizations to deeplink_edge;
grant select (id, organization_id, host, status) on domains to deeplink_edge;
grant select on app_configs to deeplink_edge;

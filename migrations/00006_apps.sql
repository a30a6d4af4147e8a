-- +goose Up
-- The association files of the shared host list the apps of all organizations, so every change of an app config also voids them, whatever
-- it changed: a repeated call must void them again if its first hint was lost. Edges of the previous version accept the form of the new
-- tag, and have no entries that depend on it.
-- +goose StatementBegin
create or replace function organizations_changed() returns trigger language plpgsql security definer set search_path = public, pg_temp as $$
begin
    if tg_op = 'UPDATE' and new.org_key <> old.org_key then
        raise exception 'an organization keeps its org_key';
    end if;
    perform record_change(array['o:' || coalesce(new.org_key, old.org_key)] || case tg_op when 'UPDATE' then '{}' else array['d:shared'] end, '{}');
    return null;
end
$$;

create or replace function app_configs_changed() returns trigger language plpgsql security definer set search_path = public, pg_temp as $$
begin
    -- No organization is found when it is deleted and its app config with it.
    perform record_change(coalesce(array_agg(distinct 'o:' || o.org_key), '{}') || array['d:shared'], '{}')
    from organizations o where o.id in (old.organization_id, new.organization_id);
    return null;
end
$$;
-- +goose StatementEnd

comment on column changes.tags is 'k:{domain}/{code in lower case}, d:{domain}, o:{org_key} or * for everything; {domain} is the org_key on the shared host, otherwise the host, and "shared" for what all organizations have in common on the shared host.';

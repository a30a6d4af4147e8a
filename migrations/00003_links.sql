-- +goose Up
create table links (
    id              uuid primary key,
    organization_id uuid not null references organizations (id),
    domain_id       uuid not null,
    short_code      text collate "C" not null check (short_code ~ '^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$'),
    path            text not null,
    channel         text,
    utm_source      text,
    utm_medium      text,
    utm_campaign    text,
    utm_term        text,
    utm_content     text,
    fallback_url    text,
    og_title        text,
    og_description  text,
    og_image_url    text,
    title           text,
    tags            text[],
    expiry          timestamptz(3),
    template_id     text,
    params          json,
    is_active       boolean not null default true,
    version         bigint not null default 1,
    changed_xid     xid8 not null default pg_current_xact_id(),
    created_at      timestamptz(3) not null default now(),
    updated_at      timestamptz(3) not null default now(),
    foreign key (organization_id, domain_id) references domains (organization_id, id)
);
create unique index links_short_code on links (organization_id, lower(short_code));
create index links_newest on links (organization_id, created_at desc, id desc);
create index links_domain on links (organization_id, domain_id);
comment on table links is 'A short URL and where it leads.';
comment on column links.short_code is 'Shown as sent, compared in lower case.';
comment on column links.params is 'JSON object as sent (json, not jsonb: numbers and order are kept to the letter).';
comment on column links.version is 'Bumped by every write (trigger).';
comment on column links.changed_xid is 'The last transaction that changed what an edge serves of this link (trigger). A repeated call waits for it.';

create table link_usage (
    organization_id uuid primary key references organizations (id) on delete cascade,
    links           bigint not null default 0 check (links >= 0)
);
comment on table link_usage is 'How many links each organization has now. Kept by a trigger in the transaction of the links themselves; locked by whoever checks a quota. Apart from organizations, because what edges read of an organization must not change with each link.';

-- Triggers set version, time and the marker of served changes, so that no code path and no manual UPDATE can omit them.
-- +goose StatementBegin
create function links_before_update() returns trigger language plpgsql as $$
begin
    if new.organization_id <> old.organization_id then
        raise exception 'a link never moves to another organization';
    end if;
    new.version := old.version + 1;
    new.updated_at := clock_timestamp();
    if row (new.id, new.organization_id, new.domain_id, new.short_code, new.path, new.channel, new.utm_source, new.utm_medium,
            new.utm_campaign, new.utm_term, new.utm_content, new.fallback_url, new.og_title, new.og_description,
            new.og_image_url, new.expiry, new.params::text, new.is_active)
       is distinct from
       row (old.id, old.organization_id, old.domain_id, old.short_code, old.path, old.channel, old.utm_source, old.utm_medium,
            old.utm_campaign, old.utm_term, old.utm_content, old.fallback_url, old.og_title, old.og_description,
            old.og_image_url, old.expiry, old.params::text, old.is_active)
    then
        new.changed_xid := pg_current_xact_id();
    else
        new.changed_xid := old.changed_xid;
    end if;
    return new;
end
$$;

create function links_before_insert() returns trigger language plpgsql as $$
begin
    new.version := 1;
    new.changed_xid := pg_current_xact_id();
    return new;
end
$$;

create function links_count() returns trigger language plpgsql security definer set search_path = public, pg_temp as $$
begin
    if tg_op = 'TRUNCATE' then
        update link_usage set links = 0;
        return null;
    end if;
    if tg_op = 'DELETE' then
        update link_usage u set links = u.links - o.n
        from (select organization_id, count(*) as n from old_rows group by 1) o where u.organization_id = o.organization_id;
    else
        insert into link_usage as u (organization_id, links) select organization_id, count(*) from new_rows group by 1
        on conflict (organization_id) do update set links = u.links + excluded.links;
    end if;
    return null;
end
$$;
-- +goose StatementEnd

create trigger links_before_update before update on links for each row execute function links_before_update();
create trigger links_before_insert before insert on links for each row execute function links_before_insert();
create trigger links_count_insert after insert on links referencing new table as new_rows for each statement execute function links_count();
create trigger links_count_delete after delete on links referencing old table as old_rows for each statement execute function links_count();
create trigger links_count_truncate after truncate on links for each statement execute function links_count();
alter table links enable always trigger links_before_update;
alter table links enable always trigger links_before_insert;
alter table links enable always trigger links_count_insert;
alter table links enable always trigger links_count_delete;
alter table links enable always trigger links_count_truncate;

grant select, insert, update, delete on links to deeplink_control;
grant select, insert, update on link_usage to deeplink_control;
grant select (id, organization_id, domain_id, short_code, path, channel, utm_source, utm_medium, utm_campaign, utm_term,
              utm_content, fallback_url, og_title, og_description, og_image_url, expiry, params, is_active)
    on links to deeplink_edge;

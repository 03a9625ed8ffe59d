"""The roles of the PostgreSQL server. Whatever is asked for twice, is done once."""

import contextlib

import psycopg
from psycopg import sql

MAX_NAME = 63
"""Of how many bytes a name is; the server cuts off the rest."""

GROUPS = """
    SELECT groups.rolname FROM pg_auth_members
    JOIN pg_roles AS groups ON groups.oid = pg_auth_members.roleid
    JOIN pg_roles AS members ON members.oid = pg_auth_members.member
    WHERE members.rolname = %s
"""


class UnavailableError(Exception):
    """The server does not answer, or not now."""


class NoSuchRoleError(Exception):
    """There is no role of that name to be a member of."""


def ensure_role(name: str, password: str, groups: list[str]) -> None:
    """Make the role as specified: a member of these groups, and of no others."""
    role = sql.Identifier(name)
    with _connect() as connection:
        if not connection.execute("SELECT FROM pg_roles WHERE rolname = %s", [name]).rowcount:
            connection.execute(sql.SQL("CREATE ROLE {}").format(role))
        connection.execute(sql.SQL("ALTER ROLE {} LOGIN PASSWORD {}").format(role, sql.Literal(password)))
        rows = connection.execute(GROUPS, [name])
        for group in {group for (group,) in rows} - set(groups):
            connection.execute(sql.SQL("REVOKE {} FROM {}").format(sql.Identifier(group), role))
        for group in groups:
            connection.execute(sql.SQL("GRANT {} TO {}").format(sql.Identifier(group), role))


def drop_role(name: str) -> None:
    """Remove the role, if there is one."""
    with _connect() as connection:
        connection.execute(sql.SQL("DROP ROLE IF EXISTS {}").format(sql.Identifier(name)))


@contextlib.contextmanager
def _connect():
    """Connect as the environment variables say (PGHOST, PGUSER, ...), and do all in one transaction."""
    try:
        with psycopg.connect(connect_timeout=10) as connection:
            yield connection
    except psycopg.OperationalError as e:
        raise UnavailableError(str(e)) from e
    except psycopg.errors.UndefinedObject as e:
        raise NoSuchRoleError(str(e)) from e

"""The client of an external API: a registrar of domains, which issues certificates, too."""

import urllib.parse

import aiohttp

URL = "https://registrar.example.com"


class RegistrarError(Exception):
    """The registrar does not do what it is asked for."""


async def register(domain: str) -> str:
    """Register the domain, and give the id of the registration; the same one if it is registered already."""
    return (await _request("PUT", f"/domains/{urllib.parse.quote(domain)}"))["id"]


async def release(domain: str) -> None:
    """Give the domain back."""
    await _request("DELETE", f"/domains/{urllib.parse.quote(domain)}")


async def issue_certificate(domain: str) -> str:
    """Issue a new certificate, and give the date of its end, as in ISO 8601."""
    return (await _request("POST", f"/domains/{urllib.parse.quote(domain)}/certificates"))["expires"]


async def _request(method: str, path: str) -> dict:
    async with aiohttp.ClientSession(URL) as session, session.request(method, path) as response:
        if response.status >= 400:
            raise RegistrarError(f"{method} {path}: {response.status}")
        return await response.json()

"""Images and video as clients send them: measured by their headers, then decoded to numpy.

Each module is imported where it is needed, ``from walkserve_sdk.media.images import read_image``: numpy comes
with them, Pillow and PyAV when the first image or video is read, torch never. They are the sdk's because
components decode media, and plugins import the sdk only.
"""
